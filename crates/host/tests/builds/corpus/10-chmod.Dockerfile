FROM localhost/test/base
COPY --chmod=0755 package.json /bin/tool
COPY --chmod=600 --chown=ada app/start.sh /x
