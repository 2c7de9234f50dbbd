"""The S3 client of AWS against a server over a folder: client.py PART ENDPOINT KEY SECRET BUCKET FOLDER."""

import base64
import datetime
import hashlib
import http.client
import io
import json
import os
import sys
import threading
import zlib

import boto3
import botocore.auth
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

part, endpoint, key_id, secret, bucket, folder = sys.argv[1:]
MIB = 1 << 20


def client(**config):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="local", aws_access_key_id=config.pop("key", key_id),
        aws_secret_access_key=config.pop("secret", secret),
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, **config))


# The judge asks nobody.
s3 = client() if endpoint.startswith("http") else None


def refused(code, status, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert found == (code, status), (found, code, status, arguments)
        return
    raise AssertionError(f"{code} was expected: {arguments}")


def put(key, body=b"x", **more):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **more)


def get(key, **more):
    return s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


def path(name):
    return os.path.join(folder, name)


def md5(data):
    return hashlib.md5(data).hexdigest()


def objects():
    data = os.urandom(300_000)
    etag = put("a/b/c.bin", data, ContentType="text/plain", Metadata={"Who": "me"}, CacheControl="no-cache", ContentEncoding="odd")["ETag"]
    assert etag == f'"{md5(data)}"', etag
    assert open(path("a/b/c.bin"), "rb").read() == data
    stat = os.stat(path("a/b/c.bin"))
    assert (stat.st_uid, stat.st_gid, stat.st_mode & 0o777) == (0, 0, 0o644), stat
    head = s3.head_object(Bucket=bucket, Key="a/b/c.bin", ChecksumMode="ENABLED")
    assert head["ContentLength"] == len(data) and head["ContentType"] == "text/plain", head
    assert head["Metadata"] == {"who": "me"} and head["CacheControl"] == "no-cache", head
    assert head["ContentEncoding"] == "odd" and head["ETag"] == etag, head
    assert any(name.startswith("ChecksumCRC") for name in head), head
    assert get("a/b/c.bin") == data
    assert get("a/b/c.bin", Range="bytes=10-19") == data[10:20]
    assert get("a/b/c.bin", Range="bytes=-5") == data[-5:]
    answer = s3.get_object(Bucket=bucket, Key="a/b/c.bin", Range="bytes=299990-999999")
    assert answer["ContentRange"] == "bytes 299990-299999/300000" and answer["Body"].read() == data[-10:]
    refused("InvalidRange", 416, s3.get_object, Bucket=bucket, Key="a/b/c.bin", Range="bytes=300000-")
    # Larger than what is read or written at once.
    large = os.urandom(3 * MIB + 17)
    put("large", large)
    assert get("large") == large and get("large", Range="bytes=600000-2600000") == large[600000:2600001]
    put("empty", b"")
    assert get("empty") == b"" and s3.head_object(Bucket=bucket, Key="empty")["ContentLength"] == 0
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put("sum", data, ChecksumAlgorithm=algorithm)
        assert get("sum") == data
        put("sum", io.BytesIO(data), ChecksumAlgorithm=algorithm)
        assert s3.head_object(Bucket=bucket, Key="sum", ChecksumMode="ENABLED")[f"Checksum{algorithm}"]
    old = client(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    old.put_object(Bucket=bucket, Key="sum", Body=data)
    assert get("sum") == data
    refused("BadDigest", 400, s3.put_object, Bucket=bucket, Key="sum", Body=b"y", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    refused("InvalidDigest", 400, s3.put_object, Bucket=bucket, Key="sum", Body=b"y", ContentMD5="short")
    refused("BadDigest", 400, s3.put_object, Bucket=bucket, Key="sum/", Body=b"", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
    refused("InvalidArgument", 400, s3.put_object, Bucket=bucket, Key="sum/", Body=b"yy")
    refused("BadDigest", 400, s3.put_object, Bucket=bucket, Key="sum", Body=b"y", ChecksumCRC32="AAAAAA==")
    assert get("sum") == data

    # Conditions.
    refused("PreconditionFailed", 412, s3.get_object, Bucket=bucket, Key="a/b/c.bin", IfMatch='"no"')
    refused("304", 304, s3.head_object, Bucket=bucket, Key="a/b/c.bin", IfNoneMatch=etag)
    assert get("a/b/c.bin", IfMatch=etag) == data
    refused("PreconditionFailed", 412, s3.put_object, Bucket=bucket, Key="a/b/c.bin", Body=b"", IfNoneMatch="*")
    put("new", b"1", IfNoneMatch="*")
    first = s3.head_object(Bucket=bucket, Key="new")["ETag"]
    put("new", b"2", IfMatch=first)
    refused("PreconditionFailed", 412, s3.put_object, Bucket=bucket, Key="new", Body=b"3", IfMatch=first)
    refused("NoSuchKey", 404, s3.put_object, Bucket=bucket, Key="none", Body=b"3", IfMatch=first)
    wins, barrier = [], threading.Barrier(8)

    def race(number):
        barrier.wait()
        try:
            put("race", str(number).encode(), IfNoneMatch="*")
            wins.append(number)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed", error

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(wins) == 1 and get("race") == str(wins[0]).encode(), wins

    # Copies.
    source = {"Bucket": bucket, "Key": "a/b/c.bin"}
    copied = s3.copy_object(Bucket=bucket, Key="copy é+ %.bin", CopySource=source)
    assert copied["CopyObjectResult"]["ETag"] == etag
    head = s3.head_object(Bucket=bucket, Key="copy é+ %.bin")
    assert head["Metadata"] == {"who": "me"} and head["ContentType"] == "text/plain"
    s3.copy_object(Bucket=bucket, Key="a/b/c.bin", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "c"})
    assert s3.head_object(Bucket=bucket, Key="a/b/c.bin")["Metadata"] == {"b": "c"}
    refused("InvalidRequest", 400, s3.copy_object, Bucket=bucket, Key="a/b/c.bin", CopySource=source)
    refused("PreconditionFailed", 412, s3.copy_object, Bucket=bucket, Key="x", CopySource=source, CopySourceIfMatch='"no"')
    refused("NoSuchKey", 404, s3.copy_object, Bucket=bucket, Key="x", CopySource={"Bucket": bucket, "Key": "no"})
    refused("NoSuchBucket", 404, s3.copy_object, Bucket=bucket, Key="x", CopySource={"Bucket": "no", "Key": "no"})

    # Deletes, with the folders that were made for the objects.
    s3.delete_object(Bucket=bucket, Key="a/b/c.bin")
    s3.delete_object(Bucket=bucket, Key="a/b/c.bin")
    refused("NoSuchKey", 404, s3.get_object, Bucket=bucket, Key="a/b/c.bin")
    assert not os.path.exists(path("a"))
    os.mkdir(path("made"))
    put("made/x/y")
    s3.delete_object(Bucket=bucket, Key="made/x/y")
    assert os.listdir(path("made")) == []
    keys = ["d/1", "d/2 &<", "d/none"]
    put(keys[0]), put(keys[1])
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys + ["../x"]]})
    assert [each["Key"] for each in answer["Deleted"]] == keys, answer
    assert [(each["Key"], each["Code"]) for each in answer["Errors"]] == [("../x", "InvalidArgument")], answer

    # Folders as objects.
    put("folder/", b"")
    assert os.path.isdir(path("folder")) and s3.head_object(Bucket=bucket, Key="folder/")["ContentLength"] == 0
    refused("404", 404, s3.head_object, Bucket=bucket, Key="folder")
    refused("404", 404, s3.head_object, Bucket=bucket, Key="made/")
    refused("InvalidArgument", 400, s3.put_object, Bucket=bucket, Key="folder/", Body=b"x")
    refused("KeyConflictsWithFile", 409, s3.put_object, Bucket=bucket, Key="folder", Body=b"x")
    refused("KeyConflictsWithFile", 409, s3.put_object, Bucket=bucket, Key="new/x", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="folder/")
    assert not os.path.exists(path("folder"))

    # Addresses that carry their signature.
    web = urllib3.PoolManager()
    address = s3.generate_presigned_url("get_object", Params={
        "Bucket": bucket, "Key": "copy é+ %.bin", "ResponseContentType": "text/html"})
    answer = web.request("GET", address)
    assert answer.status == 200 and answer.data == data, (answer.status, answer.data[:500])
    assert answer.headers["content-type"] == "text/html" and answer.headers["content-security-policy"] == "sandbox"
    address = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "by/address"})
    assert web.request("PUT", address, body=b"hello").status == 200 and get("by/address") == b"hello"
    assert web.request("PUT", address.replace("by/address", "by/other"), body=b"hello").status == 403
    assert web.request("GET", address).status == 403

    # Buckets.
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == [bucket]
    s3.head_bucket(Bucket=bucket)
    s3.get_bucket_location(Bucket=bucket)
    refused("404", 404, s3.head_bucket, Bucket="none")
    refused("NotImplemented", 501, s3.get_bucket_acl, Bucket=bucket)
    refused("AccessDenied", 403, s3.put_object, Bucket="other", Key="x", Body=b"")
    refused("NotImplemented", 501, s3.put_object, Bucket=bucket, Key="x", Body=b"", ServerSideEncryption="AES256")
    refused("MetadataTooLarge", 400, s3.put_object, Bucket=bucket, Key="x", Body=b"", Metadata={"a": "b" * 2048})


ODD = ["a.b", "a/b", "a/b c", "a/é", "a0", "b/\u65e5\u672c", "b/+", "b/%41", "b/&<>\"'", "b/\n", "b/\x01", "c=d?e#f",
       "d/e/f/g", "d/e/h", "z/\U0001f600", "~", "!x", "quote'", "back\\slash", "semi;colon", " lead", "trail "]


def lists():
    for key in ODD:
        put(key, key.encode())
    in_order = sorted(ODD, key=str.encode)
    for list_, token in (("list_objects", "Marker"), ("list_objects_v2", "ContinuationToken")):
        for size in (1, 3, 1000):
            pages = s3.get_paginator(list_).paginate(Bucket=bucket, PaginationConfig={"PageSize": size})
            found = [(each["Key"], each["ETag"]) for page in pages for each in page.get("Contents", [])]
            assert found == [(key, f'"{md5(key.encode())}"') for key in in_order], (list_, size, found)
            pages = list(s3.get_paginator(list_).paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": size}))
            prefixes = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", [])]
            assert prefixes == ["a/", "b/", "d/", "z/"], (list_, size, prefixes)
            keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
            assert keys == [key for key in in_order if "/" not in key], keys
    for key in ODD:
        assert get(key) == key.encode(), key
    answer = s3.list_objects_v2(Bucket=bucket, Prefix="d/e/", Delimiter="/")
    assert [each["Key"] for each in answer["Contents"]] == ["d/e/h"]
    assert [each["Prefix"] for each in answer["CommonPrefixes"]] == ["d/e/f/"]
    assert answer["KeyCount"] == 2 and not answer["IsTruncated"]
    answer = s3.list_objects_v2(Bucket=bucket, StartAfter="b/\u65e5\u672c")
    assert [each["Key"] for each in answer["Contents"]] == [key for key in in_order if key.encode() > "b/\u65e5\u672c".encode()]
    assert s3.list_objects_v2(Bucket=bucket, Prefix="none")["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket=bucket, Prefix="../")["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket=bucket, MaxKeys=0)["KeyCount"] == 0
    refused("InvalidArgument", 400, s3.list_objects_v2, Bucket=bucket, ContinuationToken="!")
    refused("InvalidArgument", 400, s3.list_objects_v2, Bucket=bucket, MaxKeys=-1)
    put("marked/", b""), put("marked/x")
    answer = s3.list_objects_v2(Bucket=bucket, Prefix="marked/")
    assert [each["Key"] for each in answer["Contents"]] == ["marked/", "marked/x"], answer
    s3.delete_objects(Bucket=bucket, Delete={"Quiet": True, "Objects": [{"Key": key} for key in ODD]})
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["marked/", "marked/x"]


def hidden(name="uploads"):
    return os.listdir(path(os.path.join(".holm-s3", name)))


def end_at_once(key, conditions):
    """However many ask at the same time for the end of one upload, all are told the same."""
    named = {"Bucket": bucket, "Key": key}
    named["UploadId"] = s3.create_multipart_upload(**named)["UploadId"]
    etag = s3.upload_part(**named, PartNumber=1, Body=key.encode())["ETag"]
    told, barrier = [], threading.Barrier(4)

    def end():
        barrier.wait()
        try:
            parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
            told.append(s3.complete_multipart_upload(**named, MultipartUpload=parts, **conditions)["ETag"])
        except ClientError as error:
            told.append(str(error))

    threads = [threading.Thread(target=end) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert told == [s3.head_object(Bucket=bucket, Key=key)["ETag"]] * 4, (conditions, told)


def multipart():
    data = os.urandom(12 * MIB + 5)
    s3.upload_fileobj(io.BytesIO(data), bucket, "big/file", ExtraArgs={"Metadata": {"a": "b"}, "ContentType": "x/y"},
                      Config=TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=3))
    parts = [hashlib.md5(data[at:at + 5 * MIB]).digest() for at in range(0, len(data), 5 * MIB)]
    head = s3.head_object(Bucket=bucket, Key="big/file")
    assert head["ETag"] == f'"{md5(b"".join(parts))}-3"', head
    assert head["Metadata"] == {"a": "b"} and head["ContentType"] == "x/y" and head["ContentLength"] == len(data)
    into = io.BytesIO()
    s3.download_fileobj(bucket, "big/file", into, Config=TransferConfig(multipart_threshold=5 * MIB))
    assert into.getvalue() == data and hidden() == []

    upload = s3.create_multipart_upload(Bucket=bucket, Key="k é")
    named = {"Bucket": bucket, "Key": "k é", "UploadId": upload["UploadId"]}
    tags = {}
    for number in (2, 1, 7):
        s3.upload_part(**named, PartNumber=number, Body=b"old")
        tags[number] = s3.upload_part(**named, PartNumber=number, Body=bytes([number]) * 5 * MIB)["ETag"]
    copied = s3.upload_part_copy(**named, PartNumber=9, CopySource=f"{bucket}/big/file", CopySourceRange="bytes=5-14")
    tags[9] = copied["CopyPartResult"]["ETag"]
    refused("InvalidRange", 416, s3.upload_part_copy, **named, PartNumber=10, CopySource=f"{bucket}/big/file",
            CopySourceRange=f"bytes=5-{len(data)}")
    listed = s3.list_parts(**named, MaxParts=2)
    assert [each["PartNumber"] for each in listed["Parts"]] == [1, 2] and listed["IsTruncated"], listed
    listed = s3.list_parts(**named, PartNumberMarker=2)
    assert [(each["PartNumber"], each["ETag"]) for each in listed["Parts"]] == [(7, tags[7]), (9, tags[9])], listed
    assert [each["Key"] for each in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["k é"]

    def complete(*parts):
        return s3.complete_multipart_upload(**named, MultipartUpload={
            "Parts": [{"PartNumber": number, "ETag": tag} for number, tag in parts]})

    refused("InvalidPartOrder", 400, lambda: complete((2, tags[2]), (1, tags[1])))
    refused("InvalidPart", 400, lambda: complete((1, tags[2])))
    refused("InvalidPart", 400, lambda: complete((3, tags[2])))
    refused("EntityTooSmall", 400, lambda: (s3.upload_part(**named, PartNumber=8, Body=b"s"), complete(
        (8, f'"{md5(b"s")}"'), (9, tags[9]))))
    refused("MalformedXML", 400, lambda: complete())
    refused("404", 404, s3.head_object, Bucket=bucket, Key="k é")
    parts = [(number, tags[number]) for number in (1, 7, 9)]
    tag = complete(*parts)["ETag"]
    assert get("k é") == b"\1" * 5 * MIB + b"\7" * 5 * MIB + data[5:15]
    # A client whose answer was lost asks again, as long as the object is what it has sent.
    assert complete(*parts)["ETag"] == tag == s3.head_object(Bucket=bucket, Key="k é")["ETag"]
    s3.put_object(Bucket=bucket, Key="k é", Body=b"other")
    refused("NoSuchUpload", 404, lambda: complete(*parts))
    for number in range(12):
        end_at_once(f"at once/{number}", {"IfNoneMatch": "*"} if number % 2 else {})
    refused("NoSuchUpload", 404, s3.upload_part, **named, PartNumber=1, Body=b"x")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")
    named = {"Bucket": bucket, "Key": "k", "UploadId": upload["UploadId"]}
    refused("NoSuchUpload", 404, s3.upload_part, **{**named, "Key": "other"}, PartNumber=1, Body=b"x")
    refused("NoSuchUpload", 404, s3.upload_part, **{**named, "UploadId": "../../" + "a" * 24}, PartNumber=1, Body=b"x")
    refused("InvalidArgument", 400, s3.upload_part, **named, PartNumber=10001, Body=b"x")
    s3.upload_part(**named, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**named)
    refused("NoSuchUpload", 404, s3.abort_multipart_upload, **named)
    assert hidden() == []
    for _ in range(20):
        s3.create_multipart_upload(Bucket=bucket, Key="k")
    refused("TooManyUploads", 409, s3.create_multipart_upload, Bucket=bucket, Key="k")


def crc32(data):
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def sums():
    """Checksums of objects that come in parts."""
    pieces = [b"a" * 5 * MIB, b"b"]

    def end(of_first=None, **more):
        named = {"Bucket": bucket, "Key": "summed"}
        named["UploadId"] = s3.create_multipart_upload(**named)["UploadId"]
        parts = []
        for number, piece in enumerate(pieces, 1):
            tag = s3.upload_part(**named, PartNumber=number, Body=piece, ChecksumCRC32=crc32(piece))["ETag"]
            parts.append({"PartNumber": number, "ETag": tag})
        if of_first:
            parts[0]["ChecksumCRC32"] = of_first
        try:
            s3.complete_multipart_upload(**named, MultipartUpload={"Parts": parts}, **more)
        except ClientError:
            s3.abort_multipart_upload(**named)
            raise

    whole, wrong = crc32(b"".join(pieces)), crc32(b"wrong")
    end(crc32(pieces[0]), ChecksumCRC32=whole, MpuObjectSize=5 * MIB + 1)
    assert s3.head_object(Bucket=bucket, Key="summed", ChecksumMode="ENABLED")["ChecksumCRC32"] == whole
    of_parts = crc32(b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces))
    end(ChecksumCRC32=f"{of_parts}-2")
    sha256 = base64.b64encode(hashlib.sha256(b"".join(pieces)).digest()).decode()
    end(ChecksumSHA256=sha256)
    refused("BadDigest", 400, end, ChecksumCRC32=wrong)
    refused("BadDigest", 400, end, ChecksumCRC32=f"{of_parts}-3")
    refused("BadDigest", 400, end, ChecksumCRC32=f"{wrong}-2")
    refused("InvalidPart", 400, end, of_first=wrong)
    refused("InvalidRequest", 400, end, MpuObjectSize=7)
    refused("MetadataTooLarge", 400, s3.create_multipart_upload, Bucket=bucket, Key="k", Metadata={"a": '"' * 1900})
    assert get("summed") == b"".join(pieces) and hidden() == []


class Signer(S3SigV4Auth):
    """Signs what the request says of its body, whatever that has."""

    said = None

    def payload(self, request):
        return self.said or super().payload(request)


def signed(method="GET", key="a", body=b"", headers={}, at=None, query=""):
    """A signed request as (method, url, headers, body), to be tampered with."""
    request = AWSRequest(method, f"{endpoint}/{bucket}/{key}{query}", data=body, headers=dict(headers))
    signer = Signer(Credentials(key_id, secret), "s3", "local")
    signer.said = dict(headers).get("x-amz-content-sha256")
    real = botocore.auth.get_current_datetime
    if at:
        botocore.auth.get_current_datetime = lambda *_, **__: at
    signer.add_auth(request)
    botocore.auth.get_current_datetime = real
    prepared = request.prepare()
    return [method, prepared.url, dict(prepared.headers), body]


def answer(method, url, headers, body):
    # Nothing puts this path in order on its way.
    host, path_ = url.removeprefix("http://").split("/", 1)
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request(method, f"/{path_}", body=body, headers=headers)
    got = connection.getresponse()
    text = got.read().decode(errors="replace")
    connection.close()
    code = text.split("<Code>")[1].split("</Code>")[0] if "<Code>" in text else ""
    return got.status, code


def expect(status, code, request):
    assert answer(*request) == (status, code), (answer(*request), status, code, request[:3])


def with_header(request, **fields):
    method, url, headers, body = request
    return [method, url, {**headers, **{name.replace("_", "-"): value for name, value in fields.items()}}, body]


def refusals():
    put("a", b"content")
    expect(200, "", signed())
    refused("InvalidAccessKeyId", 403, client(key="ak_none").get_object, Bucket=bucket, Key="a")
    refused("AccessDenied", 403, client(key="ak_old").get_object, Bucket=bucket, Key="a")
    refused("SignatureDoesNotMatch", 403, client(secret="wrong").get_object, Bucket=bucket, Key="a")
    refused("SignatureDoesNotMatch", 403, client(secret="wrong").get_object, Bucket="none", Key="a")
    expect(403, "AccessDenied", ["GET", f"{endpoint}/{bucket}/a", {}, b""])
    expect(403, "AccessDenied", ["GET", f"{endpoint}/none/a", {}, b""])
    method, url, headers, body = signed()
    expect(403, "SignatureDoesNotMatch", ["DELETE", url, headers, body])
    expect(403, "SignatureDoesNotMatch", [method, url + "b", headers, body])
    expect(403, "SignatureDoesNotMatch", [method, url + "?x=y", headers, body])
    expect(403, "AccessDenied", with_header(signed(), x_amz_meta_more="unsigned"))
    now = datetime.datetime.now(datetime.timezone.utc)
    for minutes, expected in ((-14, (200, "")), (-16, (403, "RequestTimeTooSkewed")), (16, (403, "RequestTimeTooSkewed"))):
        request = signed(at=now + datetime.timedelta(minutes=minutes))
        assert answer(*request) == expected, (minutes, answer(*request))

    # What is sent must be what was signed.
    request = signed("PUT", body=b"right", headers={"x-amz-content-sha256": hashlib.sha256(b"right").hexdigest()})
    request[3] = b"wrong"
    expect(400, "XAmzContentSHA256Mismatch", request)
    assert get("a") == b"content"
    expect(400, "InvalidArgument", signed("PUT", body=b"x", headers={"x-amz-content-sha256": "nonsense"}))

    # Keys that lead elsewhere, as they are on the wire.
    for key in ("../x", "a/../b", "%2e%2e/x", "a//b", "./x", "a/.", "x%00y", "..%2fx", ".holm-s3/x", "%2fetc/passwd"):
        status, code = answer(*signed("PUT", key=key, body=b"x"))
        assert status in (400, 403), (key, status, code)
    for key in ("%zz", "%f0%28", "%"):
        assert answer(*signed("PUT", key=key, body=b"x"))[0] == 400, key
    assert answer(*signed("PUT", key="k" * 1025, body=b"x")) == (400, "KeyTooLongError")

    # Chunks whose frame, signature or trailer is wrong.
    def chunked(body, length, trailer="x-amz-checksum-crc32"):
        return signed("PUT", body=body, headers={
            "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "content-encoding": "aws-chunked",
            "x-amz-decoded-content-length": str(length), "x-amz-trailer": trailer})

    good = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
    expect(200, "", chunked(good, 5))
    assert get("a") == b"hello"
    head = s3.head_object(Bucket=bucket, Key="a")
    assert "ContentEncoding" not in head, head
    for body, length, code in (
            (good, 4, "IncompleteBody"), (good, 6, "IncompleteBody"), (good[:-20], 5, "IncompleteBody"),
            (good.replace(b"Nh", b"AA"), 5, "BadDigest"), (good.replace(b"5\r", b"6\r"), 5, "IncompleteBody"),
            (b"5\r\nhello\r\n0\r\n\r\n", 5, "IncompleteBody"), (good + b"more", 5, "IncompleteBody")):
        expect(400, code, chunked(body, length))
    expect(400, "InvalidArgument", chunked(good, 5, "x-amz-checksum-md17"))
    assert get("a") == b"hello"

    expect(400, "MalformedXML", signed("POST", key="", query="?delete", body=b"<Delete><Object></Object></Delete>"))
    expect(400, "MalformedXML", signed("POST", key="", query="?delete", body=b"<!DOCTYPE x><Delete/>"))
    many = b"<Delete>" + b"<Object><Key>k</Key></Object>" * 1001 + b"</Delete>"
    expect(400, "MalformedXML", signed("POST", key="", query="?delete", body=many))
    expect(405, "MethodNotAllowed", signed("PATCH"))
    expect(501, "NotImplemented", signed(query="?acl"))
    expect(501, "NotImplemented", signed("PUT", key="", query="?versioning"))
    put("stays", b"stays")
    expect(501, "NotImplemented", signed("PUT", key="stays", query="?renameObject", headers={"x-amz-rename-source": "a"}))
    for field in ["x-amz-write-offset-bytes", "x-amz-grant-write", "x-amz-checksum-sha512", "x-amz-checksum-xxhash64"]:
        expect(501, "NotImplemented", signed("PUT", key="stays", body=b"y", headers={field: "5"}))
    for field in ["x-amz-if-match-size", "x-amz-if-match-last-modified-time"]:
        expect(501, "NotImplemented", signed("DELETE", key="stays", headers={field: "5"}))
    for more in [{"VersionId": "v"}, {"ETag": '"no"'}, {"Size": 99}]:
        answer_ = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "stays", **more}]})
        code = "PreconditionFailed" if "ETag" in more else "NotImplemented"
        assert [each["Code"] for each in answer_["Errors"]] == [code], answer_
    assert get("stays") == b"stays"
    tag = s3.head_object(Bucket=bucket, Key="stays")["ETag"]
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "stays", "ETag": tag, "VersionId": "null"}]})
    refused("404", 404, s3.head_object, Bucket=bucket, Key="stays")
    gone_meanwhile()


def gone_meanwhile():
    """An upload to a drive that is deleted before all of it has come."""

    def pieces():
        yield b"y" * MIB
        open(path("../gone"), "w").close()
        yield b"y" * MIB

    request = signed("PUT", key="late", headers={
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "content-length": str(2 * MIB)})
    request[3] = pieces()
    assert answer(*request) == (404, "NoSuchBucket")
    os.remove(path("../gone"))
    assert not os.path.exists(path("late"))


def traps():
    s3.head_bucket(Bucket=bucket)
    outside = path("../outside")
    os.makedirs(outside)
    open(os.path.join(outside, "secret"), "w").write("secret")
    os.symlink(outside, path("link"))
    os.symlink("/etc/passwd", path("passwd"))
    os.symlink("loop", path("loop"))
    os.mkfifo(path("fifo"))
    os.mknod(path("null"), 0o666 | 0o020000, os.makedev(1, 3))
    os.makedirs(path("/".join(["deep" * 60] * 12)))
    open(os.path.join(folder, "fine"), "w").write("fine")
    open(os.path.join(folder.encode(), b"\xff"), "w").close()
    for key in ("link/secret", "link", "passwd", "loop", "loop/x", "fifo", "null", "fine/x"):
        refused("NoSuchKey", 404, s3.get_object, Bucket=bucket, Key=key)
    for key in ("link/new", "loop/new", "fine/new", "fifo/new"):
        refused("KeyConflictsWithFile", 409, s3.put_object, Bucket=bucket, Key=key, Body=b"x")
    s3.delete_object(Bucket=bucket, Key="link/secret")
    assert os.listdir(outside) == ["secret"]
    # Uploads that a sandbox has begun, in what it has mounted of the drive, are no objects.
    unfinished = [f"{top}.holm-uploads/0af3/00001" for top in ("", "deeper/down/")]
    for key in unfinished:
        os.makedirs(path(os.path.dirname(key)))
        open(path(key), "w").write("half")
        for prefix in (key, os.path.dirname(key) + "/", key.split("uploads")[0]):
            assert s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] == 0, prefix
        for call in (s3.get_object, s3.delete_object, s3.put_object):
            refused("InvalidArgument", 400, call, Bucket=bucket, Key=key)
        left = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
        assert left["Errors"][0]["Code"] == "InvalidArgument" and open(path(key)).read() == "half", left
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["fine"]
    # What is put in the place of a trap takes its name, and does not go through it.
    put("passwd", b"mine")
    assert not os.path.islink(path("passwd")) and get("passwd") == b"mine"
    put("fifo", b"mine")
    assert get("fifo") == b"mine" and open("/etc/passwd").read() != "mine"
    # Nobody waits until such a file is read for its ETag.
    os.truncate(path("fine"), 1 << 43)
    copy = {"Bucket": bucket, "Key": "fine"}
    refused("EntityTooLarge", 400, s3.copy_object, Bucket=bucket, Key="copy", CopySource=copy)
    os.truncate(path("fine"), 4)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=copy)
    # A folder that turns into a link and back while others write into it.
    stop = threading.Event()

    def turn():
        os.mkdir(path("turns"))
        while not stop.is_set():
            os.rename(path("turns"), path("aside"))
            os.symlink(outside, path("turns"))
            os.unlink(path("turns"))
            os.rename(path("aside"), path("turns"))

    thread = threading.Thread(target=turn)
    thread.start()
    for number in range(100):
        try:
            put(f"turns/{number}")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "KeyConflictsWithFile", error
        except OSError:
            pass
    stop.set()
    thread.join()
    assert os.listdir(outside) == ["secret"], os.listdir(outside)


def consistency():
    put("f", b"one", Metadata={"a": "b"}, ContentType="text/x")
    first = s3.head_object(Bucket=bucket, Key="f")
    # A sandbox writes as many bytes, and sets the time back.
    before = os.stat(path("f"))
    with open(path("f"), "r+b") as file:
        file.write(b"two")
    os.utime(path("f"), ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    changed = s3.head_object(Bucket=bucket, Key="f")
    assert changed["ETag"] != first["ETag"] and changed["ETag"].endswith('-0"'), changed
    assert get("f") == b"two" and changed["ContentType"] == "text/x" and changed["Metadata"] == {"a": "b"}
    assert not any(name.startswith("Checksum") for name in s3.head_object(Bucket=bucket, Key="f", ChecksumMode="ENABLED"))
    refused("PreconditionFailed", 412, s3.put_object, Bucket=bucket, Key="f", Body=b"x", IfMatch=first["ETag"])
    put("f", b"three", IfMatch=changed["ETag"])
    assert open(path("f")).read() == "three"
    # What a sandbox makes is there at once, what it removes or moves is gone at once.
    os.makedirs(path("s/b"))
    open(path("s/b/x"), "w").write("by hand")
    assert get("s/b/x") == b"by hand"
    assert s3.list_objects_v2(Bucket=bucket, Prefix="s/")["KeyCount"] == 1
    os.rename(path("s"), path("t"))
    assert get("t/b/x") == b"by hand"
    refused("NoSuchKey", 404, s3.get_object, Bucket=bucket, Key="s/b/x")
    # Whoever has opened a file goes on reading it as it was while it is replaced.
    put("r", b"a" * MIB)
    with open(path("r"), "rb") as old:
        assert old.read(10) == b"a" * 10
        put("r", b"b" * MIB)
        assert old.read() == b"a" * (MIB - 10)
    body = s3.get_object(Bucket=bucket, Key="r")["Body"]
    assert body.read(10) == b"b" * 10
    put("r", b"c" * MIB)
    assert body.read() == b"b" * (MIB - 10)

    # Two writers, one by S3 and one by renames in the mount, and a reader on each side: all that
    # anybody sees is one of the contents, whole.
    stop, failures = threading.Event(), []

    def whole(data):
        return len(data) == 200_000 and len(set(data)) == 1

    def run(work):
        def loop():
            try:
                while not stop.is_set():
                    work()
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))
                stop.set()
        return threading.Thread(target=loop)

    put("w", b"0" * 200_000)
    turn = [0]

    def by_s3():
        client_of_thread.put_object(Bucket=bucket, Key="w", Body=bytes([turn[0] % 256]) * 200_000)

    def by_mount():
        turn[0] += 1
        with open(path("w.new"), "wb") as file:
            file.write(bytes([turn[0] % 256]) * 200_000)
        os.rename(path("w.new"), path("w"))

    def read_s3():
        answer = s3.get_object(Bucket=bucket, Key="w")
        data, etag = answer["Body"].read(), answer["ETag"].strip('"')
        assert whole(data) and (etag.endswith("-0") or etag == md5(data)), etag

    def read_mount():
        with open(path("w"), "rb") as file:
            assert whole(file.read())

    client_of_thread = client()
    threads = [run(work) for work in (by_s3, by_mount, read_s3, read_mount)]
    [thread.start() for thread in threads]
    stop.wait(4)
    stop.set()
    [thread.join() for thread in threads]
    assert not failures, failures
    assert [name for name in os.listdir(path(".holm-s3")) if name.startswith("passing-")] == []


def revoked():
    """A download and an upload that go on while their key is revoked."""
    put("large", b"x" * 64 * MIB)
    body = s3.get_object(Bucket=bucket, Key="large")["Body"]
    body.read(10)

    def pieces():
        yield b"y" * MIB
        open(path("../revoked"), "w").close()
        while True:
            yield b"y" * MIB

    request = signed("PUT", key="half", headers={
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "content-length": str(4096 * MIB)})
    request[3] = pieces()
    try:
        assert answer(*request) == (403, "AccessDenied")
    except ConnectionError:
        pass
    assert not os.path.exists(path("half"))
    try:
        body.read()
    except Exception:  # noqa: BLE001
        return
    raise AssertionError("the download went on")


def content(number):
    return number.to_bytes(4, "big") * 100_000


def writer():
    """Puts objects, replaces one and fills an upload, until nobody answers."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    before, number = [], 0
    if os.path.exists(path("turn")):
        number = int.from_bytes(open(path("turn"), "rb").read()[:4], "big")
    try:
        while True:
            number += 1
            put("turn", content(number))
            put(f"n/{number}/x", content(number))
            s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=number, Body=content(number))
            before.append(number)
            print("answered", flush=True)
    except Exception:  # noqa: BLE001
        print(json.dumps(before), flush=True)


def judge():
    """What was answered is there, and nothing that is there is half."""
    answered = json.loads(endpoint)
    turn = open(path("turn"), "rb").read()
    number = int.from_bytes(turn[:4], "big")
    assert turn == content(number) and number >= answered[-1], (number, answered[-1])
    for each in answered:
        assert open(path(f"n/{each}/x"), "rb").read() == content(each), each
    for each in os.listdir(path("n")):
        for name in os.listdir(path(f"n/{each}")):
            assert open(path(f"n/{each}/{name}"), "rb").read() == content(int(each)), each
    left = [name for name in os.listdir(path(".holm-s3")) if name != "uploads"]
    assert len(left) <= 1, left


globals()[part]()
