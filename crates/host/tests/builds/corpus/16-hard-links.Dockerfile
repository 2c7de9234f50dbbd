FROM localhost/test/base
COPY hard /hard
RUN ln /hard/one /hard/three && echo x > /tmp/a && ln /tmp/a /tmp/b
