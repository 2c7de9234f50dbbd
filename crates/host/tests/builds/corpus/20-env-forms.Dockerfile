FROM localhost/test/base
ENV OLD value with  spaces
ENV A=1 B="two words" C=three\ words D='single $A' E="$A-$B"
ENV A=2 F=$A
RUN env | grep -E '^(OLD|[A-F])=' > /env
