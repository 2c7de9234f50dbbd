FROM localhost/test/base AS parent
ONBUILD COPY package.json /onbuild/
ONBUILD RUN echo triggered > /triggered
