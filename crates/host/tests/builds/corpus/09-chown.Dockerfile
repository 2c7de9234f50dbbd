FROM localhost/test/base
COPY --chown=ada:staff app /a
COPY --chown=1234:5678 package.json /b
COPY --chown=ada package.json /c
COPY --chown=1000 app/start.sh /d/e/
