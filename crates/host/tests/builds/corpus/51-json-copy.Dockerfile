FROM localhost/test/base
COPY ["with space.txt", "package.json", "/a folder/"]
