FROM localhost/test/base
LABEL one=1
LABEL "two.words"="a value" three='x y' multi="line \
continued"
