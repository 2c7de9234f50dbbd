FROM localhost/test/base
USER ada
WORKDIR /home/ada/work/deeper
RUN touch mine
USER 1234:4321
WORKDIR /by-number
USER root
WORKDIR /home/ada/of-root
