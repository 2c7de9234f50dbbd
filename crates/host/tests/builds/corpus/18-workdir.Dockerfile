FROM localhost/test/base
WORKDIR /a/b
WORKDIR c
WORKDIR ../d
RUN pwd > where
COPY package.json sub/
COPY package.json ./dot.json
