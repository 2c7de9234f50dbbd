FROM localhost/test/base
COPY links /links
COPY links/to-file /file
COPY links/to-folder /folder
