//! The names of glyphs, and the characters they show.

/// What the glyph of this name shows; nothing where the name says nothing.
pub(super) fn text(name: &[u8]) -> String {
    let Ok(name) = std::str::from_utf8(name) else { return String::new() };
    // What follows a dot says how a glyph looks, not what it means.
    let name = name.split('.').next().unwrap_or_default();
    if let [letter @ (b'A'..=b'Z' | b'a'..=b'z')] = name.as_bytes() {
        return char::from(*letter).to_string();
    }
    if let Ok(at) = NAMES.binary_search_by_key(&name, |(name, _)| name) {
        return NAMES.get(at).map(|(_, text)| (*text).to_owned()).unwrap_or_default();
    }
    // `uni0041`, `u1F319`: the number of the character.
    let digits = name.strip_prefix("uni").or_else(|| name.strip_prefix('u')).unwrap_or_default();
    let code = digits.get(..digits.len().min(6)).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    code.and_then(char::from_u32).map(String::from).unwrap_or_default()
}

/// Sorted by name.
#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("AE", "Æ"), ("Aacute", "Á"), ("Abreve", "Ă"), ("Acaron", "Ǎ"), ("Acircumflex", "Â"),
    ("Adieresis", "Ä"), ("Adotaccent", "Ȧ"), ("Agrave", "À"), ("Amacron", "Ā"), ("Aogonek", "Ą"),
    ("Aring", "Å"), ("Atilde", "Ã"), ("Bdotaccent", "Ḃ"), ("Cacute", "Ć"), ("Ccaron", "Č"),
    ("Ccedilla", "Ç"), ("Ccircumflex", "Ĉ"), ("Ccommaaccent", "Ç"), ("Cdotaccent", "Ċ"), ("Dcaron", "Ď"),
    ("Dcedilla", "Ḑ"), ("Dcommaaccent", "Ḑ"), ("Ddotaccent", "Ḋ"), ("Delta", "Δ"), ("Eacute", "É"),
    ("Ebreve", "Ĕ"), ("Ecaron", "Ě"), ("Ecedilla", "Ȩ"), ("Ecircumflex", "Ê"), ("Ecommaaccent", "Ȩ"),
    ("Edieresis", "Ë"), ("Edotaccent", "Ė"), ("Egrave", "È"), ("Emacron", "Ē"), ("Eogonek", "Ę"),
    ("Eth", "Ð"), ("Etilde", "Ẽ"), ("Euro", "€"), ("Fdotaccent", "Ḟ"), ("Gacute", "Ǵ"), ("Gamma", "Γ"),
    ("Gbreve", "Ğ"), ("Gcaron", "Ǧ"), ("Gcedilla", "Ģ"), ("Gcircumflex", "Ĝ"), ("Gcommaaccent", "Ģ"),
    ("Gdotaccent", "Ġ"), ("Gmacron", "Ḡ"), ("Hcaron", "Ȟ"), ("Hcedilla", "Ḩ"), ("Hcircumflex", "Ĥ"),
    ("Hcommaaccent", "Ḩ"), ("Hdieresis", "Ḧ"), ("Hdotaccent", "Ḣ"), ("Iacute", "Í"), ("Ibreve", "Ĭ"),
    ("Icaron", "Ǐ"), ("Icircumflex", "Î"), ("Idieresis", "Ï"), ("Idotaccent", "İ"), ("Igrave", "Ì"),
    ("Imacron", "Ī"), ("Iogonek", "Į"), ("Itilde", "Ĩ"), ("Jcircumflex", "Ĵ"), ("Kacute", "Ḱ"),
    ("Kcaron", "Ǩ"), ("Kcedilla", "Ķ"), ("Kcommaaccent", "Ķ"), ("Lacute", "Ĺ"), ("Lambda", "Λ"),
    ("Lcaron", "Ľ"), ("Lcedilla", "Ļ"), ("Lcommaaccent", "Ļ"), ("Lslash", "Ł"), ("Macute", "Ḿ"),
    ("Mdotaccent", "Ṁ"), ("Nacute", "Ń"), ("Ncaron", "Ň"), ("Ncedilla", "Ņ"), ("Ncommaaccent", "Ņ"),
    ("Ndotaccent", "Ṅ"), ("Ngrave", "Ǹ"), ("Ntilde", "Ñ"), ("OE", "Œ"), ("Oacute", "Ó"), ("Obreve", "Ŏ"),
    ("Ocaron", "Ǒ"), ("Ocircumflex", "Ô"), ("Odieresis", "Ö"), ("Odotaccent", "Ȯ"), ("Ograve", "Ò"),
    ("Ohungarumlaut", "Ő"), ("Omacron", "Ō"), ("Omega", "Ω"), ("Oogonek", "Ǫ"), ("Oslash", "Ø"),
    ("Otilde", "Õ"), ("Pacute", "Ṕ"), ("Pdotaccent", "Ṗ"), ("Phi", "Φ"), ("Pi", "Π"), ("Psi", "Ψ"),
    ("Racute", "Ŕ"), ("Rcaron", "Ř"), ("Rcedilla", "Ŗ"), ("Rcommaaccent", "Ŗ"), ("Rdotaccent", "Ṙ"),
    ("Sacute", "Ś"), ("Scaron", "Š"), ("Scedilla", "Ş"), ("Scircumflex", "Ŝ"), ("Scommaaccent", "Ş"),
    ("Sdotaccent", "Ṡ"), ("Sigma", "Σ"), ("Tcaron", "Ť"), ("Tcedilla", "Ţ"), ("Tcommaaccent", "Ţ"),
    ("Tdotaccent", "Ṫ"), ("Theta", "Θ"), ("Thorn", "Þ"), ("Uacute", "Ú"), ("Ubreve", "Ŭ"),
    ("Ucaron", "Ǔ"), ("Ucircumflex", "Û"), ("Udieresis", "Ü"), ("Ugrave", "Ù"), ("Uhungarumlaut", "Ű"),
    ("Umacron", "Ū"), ("Uogonek", "Ų"), ("Uring", "Ů"), ("Utilde", "Ũ"), ("Vtilde", "Ṽ"), ("Wacute", "Ẃ"),
    ("Wcircumflex", "Ŵ"), ("Wdieresis", "Ẅ"), ("Wdotaccent", "Ẇ"), ("Wgrave", "Ẁ"), ("Xdieresis", "Ẍ"),
    ("Xdotaccent", "Ẋ"), ("Xi", "Ξ"), ("Yacute", "Ý"), ("Ycircumflex", "Ŷ"), ("Ydieresis", "Ÿ"),
    ("Ydotaccent", "Ẏ"), ("Ygrave", "Ỳ"), ("Ymacron", "Ȳ"), ("Ytilde", "Ỹ"), ("Zacute", "Ź"),
    ("Zcaron", "Ž"), ("Zcircumflex", "Ẑ"), ("Zdotaccent", "Ż"), ("aacute", "á"), ("abreve", "ă"),
    ("acaron", "ǎ"), ("acircumflex", "â"), ("acute", "´"), ("adieresis", "ä"), ("adotaccent", "ȧ"),
    ("ae", "æ"), ("agrave", "à"), ("alpha", "α"), ("amacron", "ā"), ("ampersand", "&"), ("aogonek", "ą"),
    ("approxequal", "≈"), ("aring", "å"), ("arrowdown", "↓"), ("arrowleft", "←"), ("arrowright", "→"),
    ("arrowup", "↑"), ("asciicircum", "^"), ("asciitilde", "~"), ("asterisk", "*"), ("at", "@"),
    ("atilde", "ã"), ("backslash", "\\"), ("bar", "|"), ("bdotaccent", "ḃ"), ("beta", "β"),
    ("braceleft", "{"), ("braceright", "}"), ("bracketleft", "["), ("bracketright", "]"), ("breve", "˘"),
    ("brokenbar", "¦"), ("bullet", "•"), ("cacute", "ć"), ("caron", "ˇ"), ("ccaron", "č"),
    ("ccedilla", "ç"), ("ccircumflex", "ĉ"), ("ccommaaccent", "ç"), ("cdotaccent", "ċ"), ("cedilla", "¸"),
    ("cent", "¢"), ("checkmark", "✓"), ("chi", "χ"), ("circumflex", "ˆ"), ("colon", ":"), ("comma", ","),
    ("copyright", "©"), ("currency", "¤"), ("dagger", "†"), ("daggerdbl", "‡"), ("dcaron", "ď"),
    ("dcedilla", "ḑ"), ("dcommaaccent", "ḑ"), ("ddotaccent", "ḋ"), ("degree", "°"), ("delta", "δ"),
    ("dieresis", "¨"), ("divide", "÷"), ("dollar", "$"), ("dotaccent", "˙"), ("dotlessi", "ı"),
    ("eacute", "é"), ("ebreve", "ĕ"), ("ecaron", "ě"), ("ecedilla", "ȩ"), ("ecircumflex", "ê"),
    ("ecommaaccent", "ȩ"), ("edieresis", "ë"), ("edotaccent", "ė"), ("egrave", "è"), ("eight", "8"),
    ("ellipsis", "…"), ("emacron", "ē"), ("emdash", "—"), ("endash", "–"), ("eogonek", "ę"),
    ("epsilon", "ε"), ("equal", "="), ("eta", "η"), ("eth", "ð"), ("etilde", "ẽ"), ("euro", "€"),
    ("exclam", "!"), ("exclamdown", "¡"), ("fdotaccent", "ḟ"), ("ff", "ff"), ("ffi", "ffi"),
    ("ffl", "ffl"), ("fi", "fi"), ("five", "5"), ("fl", "fl"), ("florin", "ƒ"), ("four", "4"),
    ("fraction", "⁄"), ("gacute", "ǵ"), ("gamma", "γ"), ("gbreve", "ğ"), ("gcaron", "ǧ"),
    ("gcedilla", "ģ"), ("gcircumflex", "ĝ"), ("gcommaaccent", "ģ"), ("gdotaccent", "ġ"),
    ("germandbls", "ß"), ("gmacron", "ḡ"), ("grave", "`"), ("greater", ">"), ("greaterequal", "≥"),
    ("guillemetleft", "«"), ("guillemetright", "»"), ("guillemotleft", "«"), ("guillemotright", "»"),
    ("guilsinglleft", "‹"), ("guilsinglright", "›"), ("hcaron", "ȟ"), ("hcedilla", "ḩ"),
    ("hcircumflex", "ĥ"), ("hcommaaccent", "ḩ"), ("hdieresis", "ḧ"), ("hdotaccent", "ḣ"),
    ("hungarumlaut", "˝"), ("hyphen", "-"), ("iacute", "í"), ("ibreve", "ĭ"), ("icaron", "ǐ"),
    ("icircumflex", "î"), ("idieresis", "ï"), ("igrave", "ì"), ("imacron", "ī"), ("infinity", "∞"),
    ("integral", "∫"), ("iogonek", "į"), ("iota", "ι"), ("itilde", "ĩ"), ("jcaron", "ǰ"),
    ("jcircumflex", "ĵ"), ("kacute", "ḱ"), ("kappa", "κ"), ("kcaron", "ǩ"), ("kcedilla", "ķ"),
    ("kcommaaccent", "ķ"), ("lacute", "ĺ"), ("lambda", "λ"), ("lcaron", "ľ"), ("lcedilla", "ļ"),
    ("lcommaaccent", "ļ"), ("less", "<"), ("lessequal", "≤"), ("logicalnot", "¬"), ("lozenge", "◊"),
    ("lslash", "ł"), ("macron", "¯"), ("macute", "ḿ"), ("mdotaccent", "ṁ"), ("middot", "·"),
    ("minus", "−"), ("mu", "µ"), ("multiply", "×"), ("nacute", "ń"), ("nbspace", " "), ("ncaron", "ň"),
    ("ncedilla", "ņ"), ("ncommaaccent", "ņ"), ("ndotaccent", "ṅ"), ("ngrave", "ǹ"), ("nine", "9"),
    ("nonbreakingspace", " "), ("notequal", "≠"), ("ntilde", "ñ"), ("nu", "ν"), ("numbersign", "#"),
    ("oacute", "ó"), ("obreve", "ŏ"), ("ocaron", "ǒ"), ("ocircumflex", "ô"), ("odieresis", "ö"),
    ("odotaccent", "ȯ"), ("oe", "œ"), ("ogonek", "˛"), ("ograve", "ò"), ("ohungarumlaut", "ő"),
    ("omacron", "ō"), ("omega", "ω"), ("omicron", "ο"), ("one", "1"), ("onehalf", "½"),
    ("onequarter", "¼"), ("onesuperior", "¹"), ("oogonek", "ǫ"), ("ordfeminine", "ª"),
    ("ordmasculine", "º"), ("oslash", "ø"), ("otilde", "õ"), ("pacute", "ṕ"), ("paragraph", "¶"),
    ("parenleft", "("), ("parenright", ")"), ("partialdiff", "∂"), ("pdotaccent", "ṗ"), ("percent", "%"),
    ("period", "."), ("periodcentered", "·"), ("perthousand", "‰"), ("phi", "φ"), ("pi", "π"),
    ("plus", "+"), ("plusminus", "±"), ("product", "∏"), ("psi", "ψ"), ("question", "?"),
    ("questiondown", "¿"), ("quotedbl", "\""), ("quotedblbase", "„"), ("quotedblleft", "“"),
    ("quotedblright", "”"), ("quoteleft", "‘"), ("quoteright", "’"), ("quotesinglbase", "‚"),
    ("quotesingle", "'"), ("racute", "ŕ"), ("radical", "√"), ("rcaron", "ř"), ("rcedilla", "ŗ"),
    ("rcommaaccent", "ŗ"), ("rdotaccent", "ṙ"), ("registered", "®"), ("rho", "ρ"), ("ring", "˚"),
    ("sacute", "ś"), ("scaron", "š"), ("scedilla", "ş"), ("scircumflex", "ŝ"), ("scommaaccent", "ş"),
    ("sdotaccent", "ṡ"), ("section", "§"), ("semicolon", ";"), ("seven", "7"), ("sfthyphen", "-"),
    ("sigma", "σ"), ("six", "6"), ("slash", "/"), ("softhyphen", "-"), ("space", " "), ("sterling", "£"),
    ("summation", "∑"), ("tau", "τ"), ("tcaron", "ť"), ("tcedilla", "ţ"), ("tcommaaccent", "ţ"),
    ("tdieresis", "ẗ"), ("tdotaccent", "ṫ"), ("theta", "θ"), ("thorn", "þ"), ("three", "3"),
    ("threequarters", "¾"), ("threesuperior", "³"), ("tilde", "˜"), ("trademark", "™"), ("two", "2"),
    ("twosuperior", "²"), ("uacute", "ú"), ("ubreve", "ŭ"), ("ucaron", "ǔ"), ("ucircumflex", "û"),
    ("udieresis", "ü"), ("ugrave", "ù"), ("uhungarumlaut", "ű"), ("umacron", "ū"), ("underscore", "_"),
    ("uogonek", "ų"), ("upsilon", "υ"), ("uring", "ů"), ("utilde", "ũ"), ("vtilde", "ṽ"), ("wacute", "ẃ"),
    ("wcircumflex", "ŵ"), ("wdieresis", "ẅ"), ("wdotaccent", "ẇ"), ("wgrave", "ẁ"), ("wring", "ẘ"),
    ("xdieresis", "ẍ"), ("xdotaccent", "ẋ"), ("xi", "ξ"), ("yacute", "ý"), ("ycircumflex", "ŷ"),
    ("ydieresis", "ÿ"), ("ydotaccent", "ẏ"), ("yen", "¥"), ("ygrave", "ỳ"), ("ymacron", "ȳ"),
    ("yring", "ẙ"), ("ytilde", "ỹ"), ("zacute", "ź"), ("zcaron", "ž"), ("zcircumflex", "ẑ"),
    ("zdotaccent", "ż"), ("zero", "0"), ("zeta", "ζ"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(NAMES.is_sorted_by(|left, right| left.0 < right.0));
    }

    #[test]
    fn names_become_characters() {
        for (name, expected) in [
            ("A", "A"),
            ("eacute", "é"),
            ("fi", "fi"),
            ("a.sc", "a"),
            ("uniD55C", "한"),
            ("u1F319", "🌙"),
            ("g17", ""),
            ("", ""),
        ] {
            assert_eq!(text(name.as_bytes()), expected, "{name}");
        }
    }
}
