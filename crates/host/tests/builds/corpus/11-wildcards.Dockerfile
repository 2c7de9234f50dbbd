FROM localhost/test/base
COPY *.json /json/
COPY app/*.sh app/?ain.py /mixed/
COPY app/[a-m]*.py /classes/
