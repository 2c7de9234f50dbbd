FROM localhost/test/base
WORKDIR /blaxel
COPY app/start.sh /entrypoint.sh
RUN chmod +x /entrypoint.sh
ENV LANG=C.UTF-8
ENTRYPOINT ["/entrypoint.sh"]
