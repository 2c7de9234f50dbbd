FROM localhost/test/base
RUN mkdir -p /gone/deep /stays/deep && touch /gone/deep/a /stays/deep/a /stays/b
RUN rm -rf /gone /stays/deep && rm /stays/b
RUN mkdir /gone && touch /gone/new
