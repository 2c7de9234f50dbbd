FROM localhost/test/base AS unused
RUN false
FROM localhost/test/base
RUN echo ok > /ok
