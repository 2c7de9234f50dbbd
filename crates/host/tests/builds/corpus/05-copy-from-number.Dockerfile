FROM localhost/test/base
RUN echo one > /one && chown 1000:1000 /one
FROM localhost/test/base
COPY --from=0 /one /two
