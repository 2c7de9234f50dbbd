FROM localhost/test/base
RUN touch /a && chmod 4755 /a && mkdir /b && chmod 1777 /b && touch /c && chmod 0 /c && chown ada:staff /c
RUN mkdir /d && chmod 2775 /d && touch /d/e
