FROM localhost/test/base
SHELL ["/bin/sh", "-ec"]
RUN echo $0 > /zero; true
