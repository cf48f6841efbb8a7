//! Stands in for `libz-ng-sys`, so that Moongate builds with a Rust toolchain alone.
//!
//! pingora-core switches on flate2's `zlib-ng` with no way to decline, and zlib-ng is C that needs `cmake`. The same
//! zlib interface exists in Rust, memory safe: this crate gives flate2 the functions it calls, from there, and the
//! root `Cargo.toml` patches it in. Nothing of ours compresses through it. It is the one crate here with `unsafe`,
//! because flate2 hands over raw pointers.

#![allow(
    non_camel_case_types,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of zlib, which flate2 calls by them"
)]

use std::ffi::{c_char, c_int};

pub use libz_rs_sys::{
    Bytef, Z_BLOCK, Z_BUF_ERROR, Z_DATA_ERROR, Z_DEFAULT_STRATEGY, Z_DEFLATED, Z_FINISH, Z_FULL_FLUSH,
    Z_MEM_ERROR, Z_NEED_DICT, Z_NO_FLUSH, Z_OK, Z_PARTIAL_FLUSH, Z_STREAM_END, Z_STREAM_ERROR, Z_SYNC_FLUSH,
    alloc_func, free_func, internal_state, uInt, uLong, voidpf, zlibVersion,
};

/// `libz_rs_sys::z_stream`, but with allocators that cannot be absent, as flate2 fills them in. An `Option` of a
/// function pointer has the layout of the pointer, so a reference to one may be read as the other.
#[repr(C)]
pub struct z_stream {
    pub next_in: *mut Bytef,
    pub avail_in: uInt,
    pub total_in: uLong,
    pub next_out: *mut Bytef,
    pub avail_out: uInt,
    pub total_out: uLong,
    pub msg: *mut c_char,
    pub state: *mut internal_state,
    pub zalloc: alloc_func,
    pub zfree: free_func,
    pub opaque: voidpf,
    pub data_type: c_int,
    pub adler: uLong,
    pub reserved: uLong,
}

const _: () = assert!(size_of::<z_stream>() == size_of::<libz_rs_sys::z_stream>());

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        pub unsafe extern "C" fn $name(stream: *mut z_stream, $($argument: $type),*) -> c_int {
            // SAFETY: the caller upholds zlib's contract for `stream`, and both stream types have one layout.
            unsafe { libz_rs_sys::$name(stream.cast(), $($argument),*) }
        }
    )*};
}

forward! {
    deflate(flush: c_int);
    deflateEnd();
    deflateReset();
    deflateParams(level: c_int, strategy: c_int);
    deflateSetDictionary(dictionary: *const Bytef, length: uInt);
    deflateInit2_(level: c_int, method: c_int, window_bits: c_int, mem_level: c_int, strategy: c_int,
        version: *const c_char, size: c_int);
    inflate(flush: c_int);
    inflateEnd();
    inflateReset2(window_bits: c_int);
    inflateSetDictionary(dictionary: *const Bytef, length: uInt);
    inflateInit2_(window_bits: c_int, version: *const c_char, size: c_int);
}
