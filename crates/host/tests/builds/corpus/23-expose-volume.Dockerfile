FROM localhost/test/base
ARG PORT=9000
EXPOSE 80 443/tcp 53/udp $PORT
VOLUME /data
VOLUME ["/logs", "/cache"]
