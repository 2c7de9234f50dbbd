FROM localhost/test/base
COPY --chown=ada:ada package.json /very/deep/down/here.json
COPY app /also/very/deep/
