FROM localhost/test/base
RUN echo old > /file && ln -s /file /link
COPY package.json /file
COPY requirements.txt /link
