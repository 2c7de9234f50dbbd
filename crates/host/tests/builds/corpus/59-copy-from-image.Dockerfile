FROM localhost/test/base
COPY --from=localhost/test/other /other /from-other
