FROM localhost/test/base
RUN ln -s /nowhere /dangling && ln -s ../bin/sh /rel && mkfifo /pipe 2>/dev/null || true
