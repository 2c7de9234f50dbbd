FROM localhost/test/base
WORKDIR /usr/src/app
COPY package.json package-lock.json ./
RUN mkdir -p node_modules/left && echo 'module.exports=1' > node_modules/left/index.js
COPY . .
ENV NODE_ENV=production PORT=3000
EXPOSE 3000
USER ada
CMD ["cat", "server.js"]
