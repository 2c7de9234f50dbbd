FROM localhost/test/base
ADD files.tar /plain/
ADD files.tar.gz /packed/
ADD package.json /added/
