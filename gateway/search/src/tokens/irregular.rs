//! English words whose inflected forms no rule relates, and those that say nothing by themselves.
//!
//! Only inflections: `decision` is another word than `decide`, and words that begin alike meet in the index anyway. A form that is
//! more often a word of its own (`ground`, `left`, `rose`) is left out.

/// The form that stands for an irregular one: `mice` → `mouse`, `wrote` → `write`.
pub(super) fn regular(word: &str) -> Option<&'static str> {
    let at = FORMS.binary_search_by_key(&word, |(form, _)| form).ok()?;
    FORMS.get(at).map(|(_, regular)| *regular)
}

/// Whether a word is grammar rather than a topic.
pub(super) fn is_common(word: &str) -> bool {
    COMMON.binary_search(&word).is_ok()
}

/// Sorted by the irregular form.
#[rustfmt::skip]
const FORMS: &[(&str, &str)] = &[
    ("admitted", "admit"), ("algae", "alga"), ("alumni", "alumnus"), ("am", "be"), ("analyse", "analyze"),
    ("analysed", "analyze"), ("analyses", "analysis"), ("analysing", "analyze"), ("analyzed", "analyze"),
    ("analyzes", "analyze"), ("analyzing", "analyze"), ("antennae", "antenna"), ("appendices", "appendix"),
    ("are", "be"), ("arisen", "arise"), ("arose", "arise"), ("ate", "eat"), ("awoke", "awake"),
    ("awoken", "awake"), ("axes", "axis"), ("bacteria", "bacterium"), ("beaten", "beat"),
    ("became", "become"), ("been", "be"), ("began", "begin"), ("begun", "begin"), ("being", "be"),
    ("bent", "bend"), ("best", "good"), ("better", "good"), ("bitten", "bite"), ("bled", "bleed"),
    ("blew", "blow"), ("blown", "blow"), ("borne", "bear"), ("bought", "buy"), ("bred", "breed"),
    ("broke", "break"), ("broken", "break"), ("brought", "bring"), ("built", "build"), ("burnt", "burn"),
    ("cacti", "cactus"), ("calves", "calf"), ("came", "come"), ("caught", "catch"), ("children", "child"),
    ("chose", "choose"), ("chosen", "choose"), ("clung", "cling"), ("crept", "creep"), ("crises", "crisis"),
    ("criteria", "criterion"), ("curricula", "curriculum"), ("dealt", "deal"), ("diagnoses", "diagnosis"),
    ("did", "do"), ("does", "do"), ("done", "do"), ("drank", "drink"), ("drawn", "draw"),
    ("dreamt", "dream"), ("drew", "draw"), ("driven", "drive"), ("drove", "drive"), ("drunk", "drink"),
    ("dug", "dig"), ("dying", "die"), ("eaten", "eat"), ("echoes", "echo"), ("elves", "elf"),
    ("emitted", "emit"), ("fallen", "fall"), ("farther", "far"), ("farthest", "far"), ("fed", "feed"),
    ("feet", "foot"), ("fell", "fall"), ("felt", "feel"), ("fled", "flee"), ("flew", "fly"),
    ("flies", "fly"), ("flown", "fly"), ("forbade", "forbid"), ("forbidden", "forbid"),
    ("foresaw", "foresee"), ("foreseen", "foresee"), ("forgave", "forgive"), ("forgiven", "forgive"),
    ("forgot", "forget"), ("forgotten", "forget"), ("formulae", "formula"), ("fought", "fight"),
    ("found", "find"), ("froze", "freeze"), ("frozen", "freeze"), ("fungi", "fungus"), ("gave", "give"),
    ("geese", "goose"), ("given", "give"), ("goes", "go"), ("gone", "go"), ("got", "get"), ("gotten", "get"),
    ("grew", "grow"), ("grown", "grow"), ("had", "have"), ("halves", "half"), ("has", "have"),
    ("heard", "hear"), ("held", "hold"), ("heroes", "hero"), ("hid", "hide"), ("hidden", "hide"),
    ("hooves", "hoof"), ("hung", "hang"), ("hypotheses", "hypothesis"), ("indexes", "index"),
    ("indices", "index"), ("is", "be"), ("kept", "keep"), ("knelt", "kneel"), ("knew", "know"),
    ("knives", "knife"), ("known", "know"), ("laid", "lay"), ("lain", "lie"), ("larvae", "larva"),
    ("leant", "lean"), ("learnt", "learn"), ("leaves", "leaf"), ("led", "lead"), ("lent", "lend"),
    ("lice", "louse"), ("lit", "light"), ("lived", "live"), ("lives", "life"), ("living", "live"),
    ("loaves", "loaf"), ("lost", "lose"), ("lying", "lie"), ("made", "make"), ("matrices", "matrix"),
    ("maxima", "maximum"), ("meant", "mean"), ("memoranda", "memorandum"), ("men", "man"), ("met", "meet"),
    ("mice", "mouse"), ("minima", "minimum"), ("mistaken", "mistake"), ("mistook", "mistake"),
    ("nuclei", "nucleus"), ("omitted", "omit"), ("optima", "optimum"), ("outgrew", "outgrow"),
    ("outgrown", "outgrow"), ("overcame", "overcome"), ("overridden", "override"), ("overrode", "override"),
    ("overwritten", "overwrite"), ("overwrote", "overwrite"), ("oxen", "ox"), ("paid", "pay"),
    ("parentheses", "parenthesis"), ("people", "person"), ("permitted", "permit"), ("permitting", "permit"),
    ("persons", "person"), ("phenomena", "phenomenon"), ("potatoes", "potato"), ("proven", "prove"),
    ("quizzes", "quiz"), ("radii", "radius"), ("ran", "run"), ("rang", "ring"), ("rebuilt", "rebuild"),
    ("retaken", "retake"), ("retook", "retake"), ("rewritten", "rewrite"), ("rewrote", "rewrite"),
    ("ridden", "ride"), ("risen", "rise"), ("rode", "ride"), ("rung", "ring"), ("said", "say"),
    ("sang", "sing"), ("sank", "sink"), ("sat", "sit"), ("scarves", "scarf"), ("schemata", "schema"),
    ("seen", "see"), ("selves", "self"), ("sent", "send"), ("sewn", "sew"), ("shaken", "shake"),
    ("shelves", "shelf"), ("shone", "shine"), ("shook", "shake"), ("shot", "shoot"), ("shown", "show"),
    ("shrank", "shrink"), ("shrunk", "shrink"), ("slept", "sleep"), ("slid", "slide"), ("sold", "sell"),
    ("sought", "seek"), ("sown", "sow"), ("spelt", "spell"), ("spent", "spend"), ("spilt", "spill"),
    ("spoke", "speak"), ("spoken", "speak"), ("sprang", "spring"), ("sprung", "spring"), ("spun", "spin"),
    ("stimuli", "stimulus"), ("stole", "steal"), ("stolen", "steal"), ("stood", "stand"),
    ("strata", "stratum"), ("stricken", "strike"), ("striven", "strive"), ("strove", "strive"),
    ("struck", "strike"), ("stuck", "stick"), ("stung", "sting"), ("submitted", "submit"), ("sung", "sing"),
    ("sunk", "sink"), ("swam", "swim"), ("swept", "sweep"), ("swollen", "swell"), ("swore", "swear"),
    ("sworn", "swear"), ("swum", "swim"), ("swung", "swing"), ("syllabi", "syllabus"),
    ("syntheses", "synthesis"), ("taken", "take"), ("taught", "teach"), ("teeth", "tooth"),
    ("theses", "thesis"), ("thieves", "thief"), ("thought", "think"), ("threw", "throw"),
    ("thrown", "throw"), ("told", "tell"), ("tomatoes", "tomato"), ("took", "take"), ("tore", "tear"),
    ("torn", "tear"), ("transmitted", "transmit"), ("understood", "understand"), ("undertaken", "undertake"),
    ("undertook", "undertake"), ("undid", "undo"), ("undone", "undo"), ("unwound", "unwind"),
    ("upheld", "uphold"), ("vertices", "vertex"), ("was", "be"), ("went", "go"), ("wept", "weep"),
    ("were", "be"), ("withdrawn", "withdraw"), ("withdrew", "withdraw"), ("withheld", "withhold"),
    ("withstood", "withstand"), ("wives", "wife"), ("woke", "wake"), ("woken", "wake"), ("wolves", "wolf"),
    ("women", "woman"), ("won", "win"), ("wore", "wear"), ("worn", "wear"), ("worse", "bad"),
    ("worst", "bad"), ("wove", "weave"), ("woven", "weave"), ("written", "write"), ("wrote", "write"),
    ("wrung", "wring"),
];

/// Sorted. Only queries weigh them less; documents keep them.
#[rustfmt::skip]
const COMMON: &[&str] = &[
    "a", "about", "after", "again", "against", "all", "also", "am", "an", "and", "another", "any", "are",
    "as", "at", "be", "been", "before", "being", "between", "both", "but", "by", "can", "could", "did", "do",
    "does", "doing", "done", "down", "during", "each", "either", "else", "every", "few", "for", "from",
    "get", "got", "had", "has", "have", "having", "he", "her", "here", "him", "his", "how", "i", "if", "in",
    "into", "is", "it", "its", "just", "many", "may", "me", "might", "more", "most", "much", "must", "my",
    "neither", "no", "nor", "not", "of", "off", "on", "once", "only", "onto", "or", "other", "our", "out",
    "over", "please", "s", "same", "shall", "she", "should", "so", "some", "such", "t", "than", "that",
    "the", "their", "them", "then", "there", "these", "they", "this", "those", "through", "to", "too",
    "under", "up", "us", "very", "was", "we", "were", "what", "when", "where", "which", "while", "who",
    "whom", "whose", "why", "will", "with", "without", "would", "yes", "yet", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_and_lead_nowhere_twice() {
        assert!(FORMS.is_sorted_by(|left, right| left.0 < right.0));
        assert!(COMMON.is_sorted_by(|left, right| left < right));
        for (form, regular) in FORMS {
            assert!(super::regular(regular).is_none(), "{form} leads to {regular}, which leads on");
        }
    }
}
