FROM localhost/test/base AS build
WORKDIR /site
COPY . .
RUN mkdir dist && cp app/*.py dist/ && echo '<html>' > dist/index.html
FROM localhost/test/base
COPY --from=build /site/dist /usr/share/nginx/html
EXPOSE 80
STOPSIGNAL SIGTERM
CMD ["nginx", "-g", "daemon off;"]
