FROM localhost/test/base
RUN true
RUN cat /etc/passwd
RUN echo seen
