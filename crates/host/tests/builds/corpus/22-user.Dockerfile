FROM localhost/test/base
USER ada
RUN id -u > /tmp/uid && id -g > /tmp/gid
USER 1234:4321
RUN id -u > /tmp/uid2
USER root
RUN id -u > /tmp/uid3
