FROM localhost/test/base AS build
RUN mkdir -p /out/etc /out/usr/bin && echo c > /out/etc/conf && echo b > /out/usr/bin/tool && chmod 711 /out/usr
FROM localhost/test/base
COPY --from=build /out/ /
