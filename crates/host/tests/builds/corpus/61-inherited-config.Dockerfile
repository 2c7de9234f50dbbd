FROM localhost/test/other
LABEL child=yes
ENV OTHER=changed
