//! The CRCs that clients send with bodies. All three are reflected, start with ones and are
//! inverted at the end, so they differ only in polynomial and width.

pub(crate) const CRC32: u64 = 0xEDB8_8320;
pub(crate) const CRC32C: u64 = 0x82F6_3B78;
pub(crate) const CRC64_NVME: u64 = 0x9A6C_9329_AC4B_C9B5;

type Tables = [[u64; 256]; 8];

/// Computes how a byte at each of eight places changes the register.
const fn tables(polynomial: u64) -> Tables {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut place = 1;
    while place < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[place - 1][byte];
            tables[place][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        place += 1;
    }
    tables
}

static TABLES_32: Tables = tables(CRC32);
static TABLES_32C: Tables = tables(CRC32C);
static TABLES_64: Tables = tables(CRC64_NVME);

#[derive(Clone)]
pub(crate) struct Crc {
    tables: &'static Tables,
    ones: u64,
    register: u64,
}

impl Crc {
    pub(crate) fn crc32() -> Self {
        Self::new(&TABLES_32, u64::from(u32::MAX))
    }

    pub(crate) fn crc32c() -> Self {
        Self::new(&TABLES_32C, u64::from(u32::MAX))
    }

    pub(crate) fn crc64_nvme() -> Self {
        Self::new(&TABLES_64, u64::MAX)
    }

    fn new(tables: &'static Tables, ones: u64) -> Self {
        Self { tables, ones, register: ones }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let mixed = (self.register ^ u64::from_le_bytes(*eight)).to_le_bytes();
            self.register = (0..8)
                .fold(0, |sum, place| sum ^ self.tables[7 - place][usize::from(mixed[place])]);
        }
        for byte in rest {
            let [low, ..] = self.register.to_le_bytes();
            self.register = self.tables[0][usize::from(low ^ byte)] ^ (self.register >> 8);
        }
    }

    /// Returns the checksum in big-endian order, as wide as the register.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let bytes = (self.register ^ self.ones).to_be_bytes();
        if self.ones == u64::MAX { bytes.to_vec() } else { bytes[4..].to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(mut crc: Crc, bytes: &[u8]) -> u64 {
        crc.update(bytes);
        crc.finish().iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    #[test]
    fn the_published_check_values_come_out() {
        let check = b"123456789";
        assert_eq!(of(Crc::crc32(), check), 0xCBF4_3926);
        assert_eq!(of(Crc::crc32c(), check), 0xE306_9283);
        assert_eq!(of(Crc::crc64_nvme(), check), 0xAE8B_1486_0A79_9888);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes: Vec<u8>, cut: usize) {
            let cut = cut.checked_rem(bytes.len()).unwrap_or(0);
            for new in [Crc::crc32, Crc::crc32c, Crc::crc64_nvme] {
                let mut crc = new();
                crc.update(&bytes[..cut]);
                crc.update(&bytes[cut..]);
                let mut slow = new();
                bytes.iter().for_each(|byte| slow.update(&[*byte]));
                prop_assert_eq!(crc.finish(), slow.finish());
            }
        }
    }
}
