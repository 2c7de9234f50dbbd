FROM localhost/test/base
RUN mkdir /x && touch /x/old /x/kept
RUN rm -rf /x && mkdir /x && touch /x/new
RUN mkdir /y && touch /y/a
RUN rm -rf /y && echo file > /y
