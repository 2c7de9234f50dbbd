FROM localhost/test/base
ARG PORT=9000
EXPOSE 80 443/tcp 53/udp $PORT
RUN mkdir /data /logs /cache
VOLUME /data
VOLUME ["/logs", "/cache"]
