//! Tests of `extract`: files as programs write them, and files as attackers do. All are made here, byte by byte, but for
//! a few real ones under `tests/fixtures/documents`.

use zlib_rs::{Deflate, DeflateFlush};

use super::*;

fn read(name: &str, bytes: &[u8]) -> Result<String, ExtractError> {
    extract(name, bytes, &Limits::default()).map(|extracted| extracted.text)
}

fn deflate(bytes: &[u8], zlib_header: bool) -> Vec<u8> {
    let mut packed = vec![0; bytes.len() / 2 + 1024];
    let mut stream = Deflate::new(6, zlib_header, 15);
    stream.compress(bytes, &mut packed, DeflateFlush::Finish).unwrap();
    packed.truncate(usize::try_from(stream.total_out()).unwrap());
    packed
}

/// A ZIP archive of these parts, deflated.
fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in parts {
        let packed = deflate(content, false);
        let at = u32::try_from(archive.len()).unwrap().to_le_bytes();
        let sizes =
            [packed.len(), content.len()].map(|size| u32::try_from(size).unwrap().to_le_bytes()).concat();
        let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let middle =
            [&[20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sizes, &name_length, &[0, 0]].concat();
        archive.extend([&b"PK\x03\x04"[..], &middle, name.as_bytes(), &packed].concat());
        directory.extend([&b"PK\x01\x02\x14\0"[..], &middle, &[0; 10], &at, name.as_bytes()].concat());
    }
    let count = u16::try_from(parts.len()).unwrap().to_le_bytes();
    let place =
        [directory.len(), archive.len()].map(|size| u32::try_from(size).unwrap().to_le_bytes()).concat();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &place, &[0, 0]].concat();
    [archive, directory, end].concat()
}

fn docx(body: &str) -> Vec<u8> {
    let document =
        format!("<?xml version=\"1.0\"?><w:document xmlns:w=\"w\"><w:body>{body}</w:body></w:document>");
    zip(&[("word/document.xml", document.as_bytes())])
}

fn xlsx(rows: &str, shared: &str) -> Vec<u8> {
    let workbook =
        "<workbook xmlns:r=\"r\"><sheets><sheet name=\"A &amp; B\" r:id=\"x\"/></sheets></workbook>";
    let relations = "<Relationships><Relationship Id=\"x\" Target=\"worksheets/one.xml\"/></Relationships>";
    let sheet = format!("<worksheet><sheetData>{rows}</sheetData></worksheet>");
    let shared = format!("<sst>{shared}</sst>");
    zip(&[
        ("xl/workbook.xml", workbook.as_bytes()),
        ("xl/_rels/workbook.xml.rels", relations.as_bytes()),
        ("xl/worksheets/one.xml", sheet.as_bytes()),
        ("xl/sharedStrings.xml", shared.as_bytes()),
    ])
}

/// A PDF of these objects, numbered from 1; the first is the catalog.
fn pdf(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"%PDF-1.7\n".to_vec();
    for (at, object) in objects.iter().enumerate() {
        file.extend([format!("{} 0 obj\n", at + 1).as_bytes(), object, b"\nendobj\n"].concat());
    }
    file.extend(b"trailer\n<</Root 1 0 R>>\n%%EOF\n");
    file
}

fn stream(dictionary: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("<<{dictionary}/Length {}>>stream\n", bytes.len());
    [head.as_bytes(), bytes, b"\nendstream"].concat()
}

/// A PDF of one page with this content and this font.
fn page(content: &[u8], font: &str, more: &[Vec<u8>]) -> Vec<u8> {
    let mut objects = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        b"<</Type/Pages/Kids[3 0 R]/Count 1/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>>>".to_vec(),
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R>>".to_vec(),
        stream("/Filter/FlateDecode", &deflate(content, true)),
        font.as_bytes().to_vec(),
    ];
    objects.extend_from_slice(more);
    pdf(&objects)
}

const HELVETICA: &str = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>";

#[test]
fn kinds_follow_from_first_bytes_and_names() {
    let kinds = [
        ("a.txt", &b"x"[..], "text/plain"),
        ("a.MD", b"x", "text/markdown"),
        ("a.csv", b"x", "text/csv"),
        ("a.rs", b"x", "text/plain"),
        ("pdf", b"x", "text/plain"),
    ];
    for (name, bytes, expected) in kinds {
        assert_eq!(extract(name, bytes, &Limits::default()).unwrap().mime_type, expected, "{name}");
    }
    let unnamed = docx("<w:p><w:r><w:t>x</w:t></w:r></w:p>");
    assert!(extract("download", &unnamed, &Limits::default()).unwrap().mime_type.contains("wordprocessing"));
    let unnamed = page(b"BT /F 9 Tf (x) Tj ET", HELVETICA, &[]);
    assert_eq!(extract("download", &unnamed, &Limits::default()).unwrap().mime_type, "application/pdf");
}

#[test]
fn a_word_document_becomes_markdown() {
    let cell = |text: &str| format!("<w:tc><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>");
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val=\"Heading2\"/></w:pPr><w:r><w:t>제목</w:t></w:r></w:p>\
         <w:p><w:pPr><w:tabs><w:tab w:pos=\"9\"/></w:tabs></w:pPr><w:r><w:t xml:space=\"preserve\">a &lt;b&gt; &#54620; </w:t>\
         <w:tab/><w:t>c</w:t><w:br/><w:t>d</w:t><w:delText>gone</w:delText></w:r></w:p>\
         <w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>item</w:t></w:r></w:p>\
         <w:tbl><w:tr>{}{}</w:tr><w:tr>{}</w:tr></w:tbl>",
        cell("k"),
        cell("v|w"),
        cell("서울")
    );
    let expected = "## 제목\na <b> 한 \tc\nd\n- item\n\n| k | v\\|w |\n| --- | --- |\n| 서울 |  |\n\n";
    assert_eq!(read("a.docx", &docx(&body)).as_deref(), Ok(expected));
}

#[test]
fn a_workbook_becomes_rows_with_tabs() {
    let rows = "<row><c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"C1\" t=\"s\"><v>1</v></c></row>\
                <row><c r=\"A2\"><v>1.5</v></c><c r=\"B2\" t=\"b\"><v>1</v></c>\
                <c r=\"C2\" t=\"str\"><f>A1</f><v>result</v></c><c t=\"inlineStr\"><is><t>in\nline</t></is></c></row><row/>\
                <row><c r=\"A4\" t=\"s\"><v>99</v></c><c r=\"B4\" t=\"e\"><v>#REF!</v></c></row>";
    let shared = "<si><t>이름</t></si><si><r><t>값</t></r><r><t>!</t></r><rPh><t>reading</t></rPh></si>";
    let expected = "# A & B\n이름\t\t값!\n1.5\tTRUE\tresult\tin line\n\t#REF!\n\n";
    assert_eq!(read("a.xlsx", &xlsx(rows, shared)).as_deref(), Ok(expected));
}

#[test]
fn a_page_is_read_line_by_line() {
    let content =
        b"BT /F 10 Tf 50 700 Td (Hello \\(w\\366rld\\)) Tj 0 -12 Td [(Ker)20(ned) -300 (apart)] TJ ET \
                    BI /W 1 ID \x01(\x02 EI BT /F 10 Tf 1 0 0 1 50 720 Tm <546F70> Tj ET";
    let text = read("a.pdf", &page(content, HELVETICA, &[])).unwrap();
    assert_eq!(text, "Top\nHello (wörld)\nKerned apart\n");
}

#[test]
fn codes_are_translated_by_the_font() {
    let table =
        b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfchar <0001> <D55C> endbfchar \
                  2 beginbfrange <0002> <0003> <AE00> <0004> <0005> [<0041> <D83CDF19>] endbfrange";
    let font = "<</Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</DW 1000>>]>>";
    let file = page(b"BT /F 9 Tf <00010002000300040005> Tj ET", font, &[stream("", table)]);
    assert_eq!(read("a.pdf", &file).as_deref(), Ok("한글\u{ae01}A🌙\n"));
    let font = "<</Subtype/Type1/Encoding<</BaseEncoding/MacRomanEncoding/Differences[1/eacute/uniD55C]>>>>";
    let file = page(b"BT /F 9 Tf (A\\216\\001\\002) Tj ET", font, &[]);
    assert_eq!(read("a.pdf", &file).as_deref(), Ok("Aéé한\n"));
    let font = "<</Subtype/Type0/Encoding/UniKS-UCS2-H/DescendantFonts[<<>>]>>";
    let file = page(b"BT /F 9 Tf <D55CAE00> Tj ET", font, &[]);
    assert_eq!(read("a.pdf", &file).as_deref(), Ok("한글\n"));
}

#[test]
fn objects_in_streams_are_found() {
    let inner = format!("5 0 {HELVETICA}");
    let packed = stream("/Type/ObjStm/N 1/First 4/Filter/FlateDecode", &deflate(inner.as_bytes(), true));
    let file = page(b"BT /F 9 Tf (found) Tj ET", "null", &[packed]);
    assert_eq!(read("a.pdf", &file).as_deref(), Ok("found\n"));
}

#[test]
fn what_is_no_document_is_refused_with_a_reason() {
    let damaged = |name: &str, bytes: &[u8]| match read(name, bytes) {
        Err(ExtractError::Damaged { reason, .. }) => reason,
        other => panic!("{name}: {other:?}"),
    };
    assert!(damaged("a.docx", b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").contains("empty"));
    assert!(damaged("a.docx", b"no archive").contains("no ZIP"));
    assert!(damaged("a.docx", &zip(&[("other.txt", b"x")])).contains("missing"));
    assert!(damaged("a.xlsx", &zip(&[("other.txt", b"x")])).contains("missing"));
    assert!(damaged("a.docx", &zip(&[("word/document.xml", b"<w:document><w:body>")])).contains("middle"));
    assert!(damaged("a.pdf", b"%PDF-1.7\nnothing").contains("no objects"));
    assert!(damaged("a.pdf", &pdf(&[b"<</Type/Catalog>>".to_vec()])).contains("no pages"));
    assert_eq!(read("a.bin", &[0, 159, 146, 150]), Err(ExtractError::Binary));
    assert_eq!(read("a.zip", &zip(&[("a", b"x")])), Err(ExtractError::Binary));
    assert_eq!(read("scan.pdf", &page(b"q Q", HELVETICA, &[])), Err(ExtractError::NoText));
}

#[test]
fn files_with_a_password_are_named_so() {
    let mut file = page(b"BT /F 9 Tf (x) Tj ET", HELVETICA, &[]);
    file.extend(b"trailer <</Root 1 0 R/Encrypt 9 0 R>>");
    assert_eq!(read("a.pdf", &file), Err(ExtractError::Encrypted));
    assert_eq!(read("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), Err(ExtractError::Encrypted));
}

#[test]
fn bombs_stop_at_the_limit() {
    let limits = Limits { unpacked: 1 << 20, text: 1 << 16, ..Limits::default() };
    let zeros = vec![b' '; 8 << 20];
    let bomb = zip(&[("word/document.xml", &zeros)]);
    assert!(bomb.len() < 100_000);
    assert_eq!(extract("a.docx", &bomb, &limits), Err(ExtractError::Unpacked { limit: 1 << 20 }));
    assert_eq!(
        extract("a.pdf", &page(&zeros, HELVETICA, &[]), &limits),
        Err(ExtractError::Unpacked { limit: 1 << 20 })
    );
    let wide = "<row><c r=\"XFD1\"><v>1</v></c></row>".repeat(50);
    assert_eq!(extract("a.xlsx", &xlsx(&wide, ""), &limits), Err(ExtractError::TooLong { limit: 1 << 16 }));
    let cells = "<w:tbl><w:tr>".to_owned() + &"<w:tc/>".repeat(20_000) + "</w:tr></w:tbl>";
    assert_eq!(extract("a.docx", &docx(&cells), &limits), Err(ExtractError::TooLong { limit: 1 << 16 }));
    let spans = "<w:tc><w:tcPr><w:gridSpan w:val=\"64\"/></w:tcPr></w:tc>".repeat(200);
    let spans = format!("<w:tbl><w:tr>{spans}</w:tr></w:tbl>");
    assert_eq!(extract("a.docx", &docx(&spans), &limits), Err(ExtractError::TooLong { limit: 1 << 16 }));
    let nothing = "z".repeat(300_000);
    let content = stream("/Filter/ASCII85Decode", nothing.as_bytes());
    assert_eq!(
        extract("a.pdf", &drawn(&[content], "<<>>"), &limits),
        Err(ExtractError::Unpacked { limit: 1 << 20 })
    );
    let limits = Limits { file: 3, ..limits };
    assert_eq!(extract("a.txt", b"four", &limits), Err(ExtractError::TooLarge { found: 4, limit: 3 }));
}

/// A PDF of as many pages as there are contents, which inherit these resources.
pub(super) fn drawn(contents: &[Vec<u8>], resources: &str) -> Vec<u8> {
    let kids = (0..contents.len()).map(|at| format!("{} 0 R ", at * 2 + 3)).collect::<Vec<_>>().concat();
    let mut objects = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        format!("<</Type/Pages/Kids[{kids}]/Resources{resources}>>").into_bytes(),
    ];
    for (at, content) in contents.iter().enumerate() {
        objects.push(format!("<</Type/Page/Contents {} 0 R>>", at * 2 + 4).into_bytes());
        objects.push(content.clone());
    }
    pdf(&objects)
}

#[test]
fn pages_read_what_they_inherit() {
    let many = (0..100_000).map(|at| format!("/{at} 0")).collect::<Vec<_>>().concat();
    let font = HELVETICA;
    let resources = format!("<</Font<</F{font}>>/Many<<{many}>>>>");
    let file = drawn(&vec![stream("", b"BT /F 9 Tf (x) Tj ET"); 2000], &resources);
    assert_eq!(read("a.pdf", &file).unwrap().lines().filter(|line| *line == "x").count(), 2000);
}

#[test]
fn a_code_that_stands_for_a_page_ends_at_the_limit() {
    let limits = Limits { text: 1 << 16, ..Limits::default() };
    let long = "0041".repeat(16);
    let table = format!("1 beginbfrange <0000> <ffff> <{long}> endbfrange");
    let font = "<</Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</DW 1000>>]>>";
    let content = format!("BT /F 9 Tf <{}> Tj ET", "0041".repeat(1 << 20));
    let file = page(content.as_bytes(), font, &[stream("", table.as_bytes())]);
    assert_eq!(extract("a.pdf", &file, &limits), Err(ExtractError::TooLong { limit: 1 << 16 }));
}

#[test]
fn tables_of_fonts_are_bounded_together() {
    let long = "0041".repeat(16);
    // The same codes over and over, and many fonts of one small table.
    let table = format!("1 beginbfrange {} endbfrange", format!("<0000> <fff0> <{long}>").repeat(2000));
    let fonts = (0..100).map(|at| format!("/F{at} {} 0 R", at + 6)).collect::<Vec<_>>().concat();
    let content = (0..100).map(|at| format!("/F{at} 9 Tf ")).collect::<Vec<_>>().concat();
    let mut objects = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        format!("<</Type/Pages/Kids[3 0 R]/Resources<</Font<<{fonts}>>>>>>").into_bytes(),
        b"<</Type/Page/Contents 4 0 R>>".to_vec(),
        stream("", content.as_bytes()),
        stream("", table.as_bytes()),
    ];
    objects.extend(vec![b"<</Subtype/Type0/Encoding/Identity-H/ToUnicode 5 0 R>>".to_vec(); 100]);
    match read("a.pdf", &pdf(&objects)) {
        Err(ExtractError::Damaged { reason, .. }) => assert!(reason.contains("fonts"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_resources_are_not_copied_for_each_operator() {
    let many = (0..50_000).map(|at| format!("/F{at} 0")).collect::<Vec<_>>().concat();
    let resources = format!("<</Font<<{many}/F{HELVETICA}>>/XObject<<{many}>>>>");
    let content = format!("BT {} (x) Tj ET", "/F 9 Tf /F1 Do ".repeat(100_000));
    // Each copy would take milliseconds, and these are two hundred thousand.
    assert_eq!(read("a.pdf", &drawn(&[stream("", content.as_bytes())], &resources)).as_deref(), Ok("x\n"));
}

#[test]
fn cells_without_a_text_need_no_tabs() {
    let limits = Limits { text: 1 << 16, ..Limits::default() };
    let empty = "<row><c r=\"XFD1\"/></row>".repeat(1000);
    assert_eq!(extract("a.xlsx", &xlsx(&empty, ""), &limits).unwrap().text, "# A & B\n\n");
    let gap = "<row><c><v>1</v></c><c/><c/><c><v>2</v></c></row>";
    assert_eq!(extract("a.xlsx", &xlsx(gap, ""), &limits).unwrap().text, "# A & B\n1\t\t\t2\n\n");
}

#[test]
fn a_reader_stops_when_nobody_waits() {
    let limits = Limits::default();
    limits.patience.end();
    for (name, file) in [
        ("a.docx", docx("<w:p/>")),
        ("a.xlsx", xlsx("<row/>", "")),
        ("a.pdf", page(b"BT ET", HELVETICA, &[])),
    ] {
        assert_eq!(extract(name, &file, &limits), Err(ExtractError::GivenUp), "{name}");
    }
}

#[test]
fn depth_and_entities_are_not_followed() {
    let deep = "<w:a>".repeat(100_000) + &"</w:a>".repeat(100_000);
    assert!(matches!(read("a.docx", &docx(&deep)), Err(ExtractError::Damaged { .. })));
    let laughs = b"<!DOCTYPE x [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;\">]><x><p><t>&b;.</t></p></x>";
    assert_eq!(read("a.docx", &zip(&[("word/document.xml", laughs)])).as_deref(), Ok(".\n"));
    let nested = [b"[".repeat(100_000), b"1 0 obj<</A".repeat(10_000)].concat();
    assert!(read("a.pdf", &pdf(&[nested])).is_err());
}

#[test]
fn circles_end() {
    let form = stream("/Subtype/Form", b"BT /F 9 Tf (again) Tj ET /X Do");
    let text = read("a.pdf", &page(b"/X Do", HELVETICA, &[form])).unwrap();
    assert!(text.lines().count() < 20);
    let pages = b"<</Type/Pages/Kids[2 0 R 3 0 R 2 0 R]>>".to_vec();
    let file = pdf(&[b"<</Pages 2 0 R>>".to_vec(), pages, b"3 0 R".to_vec()]);
    assert!(read("a.pdf", &file).is_err());
}

#[test]
fn every_beginning_of_a_file_is_survived() {
    let files = [
        ("a.docx", docx("<w:p><w:r><w:t>text</w:t></w:r></w:p>")),
        ("a.xlsx", xlsx("<row><c t=\"s\"><v>0</v></c></row>", "<si><t>x</t></si>")),
        ("a.pdf", page(b"BT /F 9 Tf (text) Tj ET", HELVETICA, &[])),
    ];
    for (name, file) in files {
        assert!(read(name, &file).is_ok());
        for end in 0..file.len() {
            // Whatever comes out comes out without a panic, which `extract` would catch.
            let _text = Kind::of(name, &file[..end]).read(&file[..end], &Limits::default());
        }
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0xff;
            let _text = Kind::of(name, &changed).read(&changed, &Limits::default());
        }
    }
}

#[test]
fn real_files_are_read() {
    let korean: &[u8] = include_bytes!("../../../../tests/fixtures/documents/pump.pdf");
    assert!(
        read("pump.pdf", korean)
            .unwrap()
            .starts_with("펌프 점검 보고서\nThe pumps were repaired. 베어링을 교체하고")
    );
    let service: &[u8] = include_bytes!("../../../../tests/fixtures/documents/service.docx");
    assert_eq!(
        read("service.docx", service).as_deref(),
        Ok(
            "# 펌프 점검\nThe bearings were replaced on Friday.\n- 베어링을 교체했다\n\n| part | count |\n| --- | --- |\n| seal | 12 |\n\n"
        )
    );
    let stock: &[u8] = include_bytes!("../../../../tests/fixtures/documents/stock.xlsx");
    assert!(
        read("stock.xlsx", stock)
            .unwrap()
            .starts_with("# 재고\n품목\t수량\t단가\t참고\n나사 M4\t1200\t0.05\tTRUE\n")
    );
}
