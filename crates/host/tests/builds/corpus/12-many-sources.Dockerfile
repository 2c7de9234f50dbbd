FROM localhost/test/base
COPY package.json requirements.txt app /all/
