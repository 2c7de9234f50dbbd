FROM localhost/test/base
RUN mkdir /here
COPY package.json /here
COPY package.json /there/
COPY package.json /file
