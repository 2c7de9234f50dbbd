FROM localhost/test/base
COPY . /ctx
