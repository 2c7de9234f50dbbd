FROM localhost/test/base
COPY app /times/app
COPY package.json /times/
