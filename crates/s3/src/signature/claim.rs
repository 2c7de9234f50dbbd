//! What a request says about who made it, and when.

use super::canonical;
use super::chain::Chain;
use super::hmac;
use crate::access::Secret;
use crate::date;
use crate::error::{Code, Error};
use http::request::Parts;
use subtle::ConstantTimeEq;
use types::{Timestamp, hex};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How far the clocks of a client and of this server may differ.
const SKEW_S_MAX: i64 = 15 * 60;
const EXPIRES_S_MAX: i64 = 7 * 24 * 3600;

/// How the body is bound to the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    /// The body is not signed.
    Unsigned,
    /// SHA-256 in lower-case hexadecimal.
    Digest(String),
    /// In chunks, which may each be signed, and may be followed by header fields.
    Chunks { signed: bool, trailer: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    /// A presigned URL, which is valid for this many seconds.
    Query {
        expires_s: i64,
    },
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) key_id: String,
    date: String,
    at: Timestamp,
    region: String,
    signed: Vec<String>,
    signature: String,
    payload: String,
    place: Place,
    query: Vec<(String, String)>,
}

impl Claim {
    /// Reads a claim, and refuses one that is too old or too far in the future.
    pub(crate) fn read(
        parts: &Parts,
        query: Vec<(String, String)>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let in_query = |name: &str| {
            query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
        };
        let claim = match (parts.headers.get("authorization"), in_query("X-Amz-Signature")) {
            (Some(_), Some(_)) => {
                let message = "A request is signed in its header or in its query, not in both.";
                return Err(Error::new(Code::InvalidRequest, message));
            }
            (Some(value), None) => {
                let value = value.to_str().map_err(|_| bad_header())?;
                Self::of_header(parts, value).ok_or_else(bad_header)?
            }
            (None, Some(signature)) => {
                Self::of_query(parts, signature, in_query).ok_or_else(bad_query)?
            }
            (None, None) => {
                let message = "Requests are signed with Signature Version 4; \
                    AWS clients presign with it if `signature_version` is `s3v4`.";
                return Err(Error::new(Code::AccessDenied, message));
            }
        };
        let claim = Self { query, ..claim };
        claim.check_time(now)?;
        claim.check_signed(parts)?;
        Ok(claim)
    }

    fn of_header(parts: &Parts, value: &str) -> Option<Self> {
        let fields = value.strip_prefix(ALGORITHM)?.strip_prefix(' ')?;
        let mut found = [None; 3];
        for field in fields.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            let mut place = ["Credential", "SignedHeaders", "Signature"].iter();
            let place = place.position(|known| *known == name)?;
            found.get_mut(place)?.replace(value).is_none().then_some(())?;
        }
        let [Some(credential), Some(signed), Some(signature)] = found else { return None };
        let header = |name: &str| parts.headers.get(name)?.to_str().ok();
        let payload = header("x-amz-content-sha256")?;
        Self::new(credential, signed, signature, header("x-amz-date")?, payload, Place::Header)
    }

    fn of_query<'q>(
        parts: &Parts,
        signature: &str,
        query: impl Fn(&str) -> Option<&'q str>,
    ) -> Option<Self> {
        if query("X-Amz-Algorithm")? != ALGORITHM {
            return None;
        }
        let expires_s = query("X-Amz-Expires")?.parse().ok()?;
        if !(1..=EXPIRES_S_MAX).contains(&expires_s) {
            return None;
        }
        let header = parts.headers.get("x-amz-content-sha256");
        let payload = match (header, query("X-Amz-Content-Sha256")) {
            (Some(payload), _) => payload.to_str().ok()?,
            (None, Some(payload)) => payload,
            (None, None) => "UNSIGNED-PAYLOAD",
        };
        Self::new(
            query("X-Amz-Credential")?,
            query("X-Amz-SignedHeaders")?,
            signature,
            query("X-Amz-Date")?,
            payload,
            Place::Query { expires_s },
        )
    }

    fn new(
        credential: &str,
        signed: &str,
        signature: &str,
        date: &str,
        payload: &str,
        place: Place,
    ) -> Option<Self> {
        let mut scope = credential.split('/');
        let [key_id, day, region, service, end] =
            [scope.next()?, scope.next()?, scope.next()?, scope.next()?, scope.next()?];
        let whole = scope.next().is_none() && service == "s3" && end == "aws4_request";
        let names: Vec<String> = signed.split(';').map(str::to_owned).collect();
        let ordered = names.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
        let plain = |name: &String| !name.bytes().any(|byte| byte.is_ascii_uppercase());
        let fits = whole
            && date.starts_with(day)
            && day.len() == 8
            && !key_id.is_empty()
            && ordered
            && names.iter().all(plain)
            && names.iter().any(|name| name == "host");
        fits.then_some(())?;
        Some(Self {
            key_id: key_id.to_owned(),
            at: date::parse_amz(date)?,
            date: date.to_owned(),
            region: region.to_owned(),
            signed: names,
            signature: signature.to_owned(),
            payload: payload.to_owned(),
            place,
            query: Vec::new(),
        })
    }

    fn check_time(&self, now: Timestamp) -> Result<(), Error> {
        let age_s = now.since(self.at).div_euclid(1000);
        let (oldest, code, message) = match self.place {
            Place::Header => {
                let message = "The clocks of the request and of the server are too far apart.";
                (SKEW_S_MAX, Code::ClockSkewed, message)
            }
            Place::Query { expires_s } => {
                (expires_s, Code::AccessDenied, "The address has expired, or is not valid yet.")
            }
        };
        if age_s > oldest || age_s < -SKEW_S_MAX {
            return Err(Error::new(code, message));
        }
        Ok(())
    }

    fn check_signed(&self, parts: &Parts) -> Result<(), Error> {
        match canonical::unsigned(&parts.headers, &self.signed) {
            // A presigned URL may be used with a digest that is not among its signed fields. The
            // body is still checked against it.
            Some(name) if name == "x-amz-content-sha256" && self.place != Place::Header => Ok(()),
            Some(name) => {
                let message = format!("The header field {name} has to be signed.");
                Err(Error::new(Code::AccessDenied, message))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn payload(&self) -> Result<Payload, Error> {
        let hexadecimal = |text: &str| {
            text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        Ok(match self.payload.as_str() {
            "UNSIGNED-PAYLOAD" => Payload::Unsigned,
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => {
                Payload::Chunks { signed: false, trailer: true }
            }
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => {
                Payload::Chunks { signed: true, trailer: false }
            }
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
                Payload::Chunks { signed: true, trailer: true }
            }
            digest if hexadecimal(digest) => Payload::Digest(digest.to_owned()),
            _ => {
                let message = "The value of x-amz-content-sha256 is none that is known here.";
                return Err(Error::argument(message));
            }
        })
    }

    /// Verifies that the claim was signed with the secret. The body is checked later, by whoever
    /// reads it, using the returned chain if it comes in signed chunks.
    pub(crate) fn check(&self, parts: &Parts, secret: &Secret) -> Result<Chain, Error> {
        let day = self.date.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let request = canonical::request(parts, &self.query, &self.signed, &self.payload);
        let request = request.ok_or_else(mismatch)?;
        let text = canonical::string_to_sign(&self.date, &scope, &request);
        let first = zeroize::Zeroizing::new(format!("AWS4{}", secret.as_str()));
        let key = [day, &self.region, "s3", "aws4_request"]
            .iter()
            .fold(first.as_bytes().to_vec(), |key, part| hmac(&key, part).as_ref().to_vec());
        let signature = hex::encode(hmac(&key, &text).as_ref());
        if bool::from(signature.as_bytes().ct_eq(self.signature.as_bytes())) {
            Ok(Chain::new(key, &self.date, &scope, signature))
        } else {
            Err(mismatch())
        }
    }
}

fn mismatch() -> Error {
    let message = "The signature is not the one that the secret of this key makes.";
    Error::new(Code::SignatureMismatch, message)
}

fn bad_header() -> Error {
    let message = "The header lacks something that Signature Version 4 needs, or it is not valid.";
    Error::new(Code::BadSignatureHeader, message)
}

fn bad_query() -> Error {
    let message = "The query lacks something that Signature Version 4 needs, or it is not valid.";
    Error::new(Code::BadSignatureQuery, message)
}
