FROM localhost/test/base
RUN mkdir -p /usr/lib && ln -s usr/lib /lib && ln -s /usr/lib/deep /via && mkdir /usr/lib/deep
COPY package.json /lib/x.json
COPY package.json /via/y.json
COPY app /via/
