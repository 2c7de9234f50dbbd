//! One header block of 512 bytes.

use super::malformed::Malformed;

pub(super) const BLOCK: usize = 512;
pub(super) type Block = [u8; BLOCK];

pub(super) struct Header<'a>(pub(super) &'a Block);

impl Header<'_> {
    /// Verifies the checksum. Old programs summed signed bytes, so both sums are accepted.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        let stored = number(&self.0[148..156])?;
        let byte = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
        let (mut unsigned, mut signed) = (0u64, 0i64);
        for byte in self.0.iter().enumerate().map(byte) {
            unsigned += u64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        if stored == unsigned || i64::try_from(stored) == Ok(signed) {
            Ok(())
        } else {
            Err(Malformed("checksum"))
        }
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = text(&self.0[345..500]);
        // GNU stores other data where POSIX has the first part of a long path.
        if &self.0[257..263] != b"ustar\0" || prefix.is_empty() {
            return name.to_vec();
        }
        [prefix, b"/", name].concat()
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Result<u32, Malformed> {
        Ok((number(&self.0[100..108])? & 0o7777) as u32)
    }

    pub(super) fn uid(&self) -> Result<u32, Malformed> {
        owner(number(&self.0[108..116])?)
    }

    pub(super) fn gid(&self) -> Result<u32, Malformed> {
        owner(number(&self.0[116..124])?)
    }

    pub(super) fn size(&self) -> Result<u64, Malformed> {
        number(&self.0[124..136])
    }

    /// Returns the modification time. A time before 1970 is useless and becomes 1970.
    pub(super) fn modified(&self) -> Result<i64, Malformed> {
        let field = &self.0[136..148];
        let seconds = if field[0] == 0xff { 0 } else { number(field)? };
        seconds.try_into().map_err(|_| Malformed("time"))
    }

    pub(super) fn sparse(&self) -> Result<SparseHeader, Malformed> {
        let (extents, more) = (extents(&self.0[386..482])?, self.0[482] != 0);
        Ok(SparseHeader { extents, more, size: number(&self.0[483..495])? })
    }
}

/// The start of a sparse file's map.
pub(super) struct SparseHeader {
    pub(super) extents: Vec<(u64, u64)>,
    /// Whether the map continues in further blocks.
    pub(super) more: bool,
    pub(super) size: u64,
}

/// Parses pairs of offset and length until the first empty one.
pub(super) fn extents(bytes: &[u8]) -> Result<Vec<(u64, u64)>, Malformed> {
    bytes
        .chunks_exact(24)
        .take_while(|pair| pair[0] != 0)
        .map(|pair| Ok((number(&pair[..12])?, number(&pair[12..])?)))
        .collect()
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Checks an owner. The highest number means "nobody in particular" to the kernel.
pub(super) fn owner(id: u64) -> Result<u32, Malformed> {
    u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(Malformed("owner"))
}

/// Parses octal digits between blanks, or GNU's base 256 if the first bit is set.
fn number(field: &[u8]) -> Result<u64, Malformed> {
    let wrong = Malformed("number");
    if let [first @ 0x80..=0xbf, rest @ ..] = field {
        return rest.iter().try_fold(u64::from(first & 0x3f), |value, byte| {
            Ok(value.checked_mul(256).ok_or(Malformed("number"))? | u64::from(*byte))
        });
    }
    let digits = field.trim_ascii();
    let digits = digits.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    digits.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'7' => value
            .checked_mul(8)
            .map(|value| value + u64::from(digit - b'0'))
            .ok_or(Malformed("number")),
        _ => Err(wrong),
    })
}
