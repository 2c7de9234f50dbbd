FROM localhost/test/base
COPY hard /hard
RUN echo x > /tmp/a && ln /tmp/a /tmp/b
