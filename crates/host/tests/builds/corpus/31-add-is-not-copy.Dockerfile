FROM localhost/test/base
COPY files.tar.gz /as-is/
