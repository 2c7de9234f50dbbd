FROM localhost/test/base
HEALTHCHECK CMD ["true"]
HEALTHCHECK NONE
