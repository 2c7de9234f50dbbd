FROM localhost/test/base
ENV ROOT=/srv
WORKDIR $ROOT/${SUB:-app}
RUN pwd > here
