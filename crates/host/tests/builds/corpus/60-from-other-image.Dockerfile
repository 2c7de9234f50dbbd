FROM localhost/test/other
ENV MORE=1
RUN cat /other > /copied
