#include "text/tokenizer/language_names.h"

#include <algorithm>

namespace espalier {
namespace {

struct LanguageName {
  std::string_view code;         // FLORES-200's: ISO 639-3 and the script
  std::string_view short_codes;  // ISO 639-1's, with "," between them
  std::string_view names;        // in English, with "|" between them
};

// Languages of NLLB-200, M2M100 and mBART-50.
constexpr LanguageName kLanguageNames[] = {
    {"ace_Arab", "", "Acehnese (Arabic)|Acehnese"},
    {"ace_Latn", "", "Acehnese (Latin)|Acehnese"},
    {"acm_Arab", "", "Mesopotamian Arabic"},
    {"acq_Arab", "", "Ta'izzi-Adeni Arabic"},
    {"aeb_Arab", "", "Tunisian Arabic"},
    {"afr_Latn", "af", "Afrikaans"},
    {"ajp_Arab", "", "South Levantine Arabic"},
    {"aka_Latn", "ak", "Akan"},
    {"als_Latn", "sq", "Tosk Albanian|Albanian"},
    {"amh_Ethi", "am", "Amharic"},
    {"apc_Arab", "", "North Levantine Arabic"},
    {"arb_Arab", "ar", "Modern Standard Arabic|Arabic"},
    {"ars_Arab", "", "Najdi Arabic"},
    {"ary_Arab", "", "Moroccan Arabic"},
    {"arz_Arab", "", "Egyptian Arabic"},
    {"asm_Beng", "as", "Assamese"},
    {"ast_Latn", "", "Asturian"},
    {"awa_Deva", "", "Awadhi"},
    {"ayr_Latn", "ay", "Central Aymara|Aymara"},
    {"azb_Arab", "", "South Azerbaijani"},
    {"azj_Latn", "az", "North Azerbaijani|Azerbaijani"},
    {"bak_Cyrl", "ba", "Bashkir"},
    {"bam_Latn", "bm", "Bambara"},
    {"ban_Latn", "", "Balinese"},
    {"bel_Cyrl", "be", "Belarusian"},
    {"bem_Latn", "", "Bemba"},
    {"ben_Beng", "bn", "Bengali"},
    {"bho_Deva", "", "Bhojpuri"},
    {"bjn_Arab", "", "Banjar (Arabic)|Banjar"},
    {"bjn_Latn", "", "Banjar (Latin)|Banjar"},
    {"bod_Tibt", "bo", "Standard Tibetan|Tibetan"},
    {"bos_Latn", "bs", "Bosnian"},
    {"bre_Latn", "br", "Breton"},
    {"bug_Latn", "", "Buginese"},
    {"bul_Cyrl", "bg", "Bulgarian"},
    {"cat_Latn", "ca", "Catalan"},
    {"ceb_Latn", "", "Cebuano"},
    {"ces_Latn", "cs", "Czech"},
    {"cjk_Latn", "", "Chokwe"},
    {"ckb_Arab", "", "Central Kurdish"},
    {"crh_Latn", "", "Crimean Tatar"},
    {"cym_Latn", "cy", "Welsh"},
    {"dan_Latn", "da", "Danish"},
    {"deu_Latn", "de", "German"},
    {"dik_Latn", "", "Southwestern Dinka|Dinka"},
    {"dyu_Latn", "", "Dyula"},
    {"dzo_Tibt", "dz", "Dzongkha"},
    {"ell_Grek", "el", "Greek"},
    {"eng_Latn", "en", "English"},
    {"epo_Latn", "eo", "Esperanto"},
    {"est_Latn", "et", "Estonian"},
    {"eus_Latn", "eu", "Basque"},
    {"ewe_Latn", "ee", "Ewe"},
    {"fao_Latn", "fo", "Faroese"},
    {"fij_Latn", "fj", "Fijian"},
    {"fin_Latn", "fi", "Finnish"},
    {"fon_Latn", "", "Fon"},
    {"fra_Latn", "fr", "French"},
    {"fry_Latn", "fy", "Western Frisian|Frisian"},
    {"fur_Latn", "", "Friulian"},
    {"fuv_Latn", "ff", "Nigerian Fulfulde|Fulah"},
    {"gaz_Latn", "om", "West Central Oromo|Oromo"},
    {"gla_Latn", "gd", "Scottish Gaelic"},
    {"gle_Latn", "ga", "Irish"},
    {"glg_Latn", "gl", "Galician"},
    {"grn_Latn", "gn", "Guarani"},
    {"guj_Gujr", "gu", "Gujarati"},
    {"hat_Latn", "ht", "Haitian Creole"},
    {"hau_Latn", "ha", "Hausa"},
    {"heb_Hebr", "he", "Hebrew"},
    {"hin_Deva", "hi", "Hindi"},
    {"hne_Deva", "", "Chhattisgarhi"},
    {"hrv_Latn", "hr", "Croatian"},
    {"hun_Latn", "hu", "Hungarian"},
    {"hye_Armn", "hy", "Armenian"},
    {"ibo_Latn", "ig", "Igbo"},
    {"ilo_Latn", "", "Ilocano"},
    {"ind_Latn", "id", "Indonesian"},
    {"isl_Latn", "is", "Icelandic"},
    {"ita_Latn", "it", "Italian"},
    {"jav_Latn", "jv", "Javanese"},
    {"jpn_Jpan", "ja", "Japanese"},
    {"kab_Latn", "", "Kabyle"},
    {"kac_Latn", "", "Jingpho"},
    {"kam_Latn", "", "Kamba"},
    {"kan_Knda", "kn", "Kannada"},
    {"kas_Arab", "ks", "Kashmiri (Arabic)|Kashmiri"},
    {"kas_Deva", "ks", "Kashmiri (Devanagari)|Kashmiri"},
    {"kat_Geor", "ka", "Georgian"},
    {"kaz_Cyrl", "kk", "Kazakh"},
    {"kbp_Latn", "", "Kabiye"},
    {"kea_Latn", "", "Kabuverdianu"},
    {"khk_Cyrl", "mn", "Halh Mongolian|Mongolian"},
    {"khm_Khmr", "km", "Khmer"},
    {"kik_Latn", "ki", "Kikuyu"},
    {"kin_Latn", "rw", "Kinyarwanda"},
    {"kir_Cyrl", "ky", "Kyrgyz"},
    {"kmb_Latn", "", "Kimbundu"},
    {"kmr_Latn", "ku", "Northern Kurdish|Kurdish"},
    {"knc_Arab", "kr", "Central Kanuri (Arabic)|Kanuri"},
    {"knc_Latn", "kr", "Central Kanuri (Latin)|Kanuri"},
    {"kon_Latn", "kg", "Kikongo"},
    {"kor_Hang", "ko", "Korean"},
    {"lao_Laoo", "lo", "Lao"},
    {"lij_Latn", "", "Ligurian"},
    {"lim_Latn", "li", "Limburgish"},
    {"lin_Latn", "ln", "Lingala"},
    {"lit_Latn", "lt", "Lithuanian"},
    {"lmo_Latn", "", "Lombard"},
    {"ltg_Latn", "", "Latgalian"},
    {"ltz_Latn", "lb", "Luxembourgish"},
    {"lua_Latn", "", "Luba-Kasai"},
    {"lug_Latn", "lg", "Ganda"},
    {"luo_Latn", "", "Luo"},
    {"lus_Latn", "", "Mizo"},
    {"lvs_Latn", "lv", "Standard Latvian|Latvian"},
    {"mag_Deva", "", "Magahi"},
    {"mai_Deva", "", "Maithili"},
    {"mal_Mlym", "ml", "Malayalam"},
    {"mar_Deva", "mr", "Marathi"},
    {"min_Arab", "", "Minangkabau (Arabic)|Minangkabau"},
    {"min_Latn", "", "Minangkabau (Latin)|Minangkabau"},
    {"mkd_Cyrl", "mk", "Macedonian"},
    {"mlt_Latn", "mt", "Maltese"},
    {"mni_Beng", "", "Meitei"},
    {"mos_Latn", "", "Mossi"},
    {"mri_Latn", "mi", "Maori"},
    {"mya_Mymr", "my", "Burmese"},
    {"nld_Latn", "nl", "Dutch"},
    {"nno_Latn", "nn", "Norwegian Nynorsk"},
    {"nob_Latn", "nb,no", "Norwegian Bokmal|Norwegian"},
    {"npi_Deva", "ne", "Nepali"},
    {"nso_Latn", "ns", "Northern Sotho"},
    {"nus_Latn", "", "Nuer"},
    {"nya_Latn", "ny", "Nyanja"},
    {"oci_Latn", "oc", "Occitan"},
    {"ory_Orya", "or", "Odia"},
    {"pag_Latn", "", "Pangasinan"},
    {"pan_Guru", "pa", "Eastern Panjabi|Panjabi|Punjabi"},
    {"pap_Latn", "", "Papiamento"},
    {"pbt_Arab", "ps", "Southern Pashto|Pashto"},
    {"pes_Arab", "fa", "Western Persian|Persian"},
    {"plt_Latn", "mg", "Plateau Malagasy|Malagasy"},
    {"pol_Latn", "pl", "Polish"},
    {"por_Latn", "pt", "Portuguese"},
    {"prs_Arab", "", "Dari"},
    {"quy_Latn", "qu", "Ayacucho Quechua|Quechua"},
    {"ron_Latn", "ro", "Romanian"},
    {"run_Latn", "rn", "Rundi"},
    {"rus_Cyrl", "ru", "Russian"},
    {"sag_Latn", "sg", "Sango"},
    {"san_Deva", "sa", "Sanskrit"},
    {"sat_Beng", "", "Santali"},
    {"sat_Olck", "", "Santali"},
    {"scn_Latn", "", "Sicilian"},
    {"shn_Mymr", "", "Shan"},
    {"sin_Sinh", "si", "Sinhala"},
    {"slk_Latn", "sk", "Slovak"},
    {"slv_Latn", "sl", "Slovenian"},
    {"smo_Latn", "sm", "Samoan"},
    {"sna_Latn", "sn", "Shona"},
    {"snd_Arab", "sd", "Sindhi"},
    {"som_Latn", "so", "Somali"},
    {"sot_Latn", "st", "Southern Sotho"},
    {"spa_Latn", "es", "Spanish"},
    {"srd_Latn", "sc", "Sardinian"},
    {"srp_Cyrl", "sr", "Serbian"},
    {"ssw_Latn", "ss", "Swati"},
    {"sun_Latn", "su", "Sundanese"},
    {"swe_Latn", "sv", "Swedish"},
    {"swh_Latn", "sw", "Swahili"},
    {"szl_Latn", "", "Silesian"},
    {"tam_Taml", "ta", "Tamil"},
    {"taq_Latn", "", "Tamasheq (Latin)|Tamasheq"},
    {"taq_Tfng", "", "Tamasheq (Tifinagh)|Tamasheq"},
    {"tat_Cyrl", "tt", "Tatar"},
    {"tel_Telu", "te", "Telugu"},
    {"tgk_Cyrl", "tg", "Tajik"},
    {"tgl_Latn", "tl", "Tagalog"},
    {"tha_Thai", "th", "Thai"},
    {"tir_Ethi", "ti", "Tigrinya"},
    {"tpi_Latn", "", "Tok Pisin"},
    {"tsn_Latn", "tn", "Tswana"},
    {"tso_Latn", "ts", "Tsonga"},
    {"tuk_Latn", "tk", "Turkmen"},
    {"tum_Latn", "", "Tumbuka"},
    {"tur_Latn", "tr", "Turkish"},
    {"twi_Latn", "tw", "Twi"},
    {"tzm_Tfng", "", "Central Atlas Tamazight"},
    {"uig_Arab", "ug", "Uyghur"},
    {"ukr_Cyrl", "uk", "Ukrainian"},
    {"umb_Latn", "", "Umbundu"},
    {"urd_Arab", "ur", "Urdu"},
    {"uzn_Latn", "uz", "Northern Uzbek|Uzbek"},
    {"vec_Latn", "", "Venetian"},
    {"vie_Latn", "vi", "Vietnamese"},
    {"war_Latn", "", "Waray"},
    {"wol_Latn", "wo", "Wolof"},
    {"xho_Latn", "xh", "Xhosa"},
    {"ydd_Hebr", "yi", "Eastern Yiddish|Yiddish"},
    {"yor_Latn", "yo", "Yoruba"},
    {"yue_Hant", "", "Yue Chinese|Cantonese"},
    {"zho_Hans", "zh", "Chinese (Simplified)|Chinese"},
    {"zho_Hant", "zh", "Chinese (Traditional)|Chinese"},
    {"zsm_Latn", "ms", "Standard Malay|Malay"},
    {"zul_Latn", "zu", "Zulu"},
};

std::string_view BaseOf(std::string_view code) {
  return code.substr(0, code.find('_'));
}

// "_Hant"; empty if the code has one part.
std::string_view SuffixOf(std::string_view code) {
  return code.substr(std::min(code.find('_'), code.size()));
}

// Adds the parts of `list`.
void AddParts(std::string_view list, char separator,
              std::vector<std::string_view>* parts) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(separator), list.size());
    parts->push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

// Calls `on_language` with those that `code` stands for: those of its script,
// if it names one that the language has.
template <typename Function>
void ForLanguages(std::string_view code, const Function& on_language) {
  const auto* const exact =
      std::ranges::find(kLanguageNames, code, &LanguageName::code);
  if (exact != std::end(kLanguageNames)) return on_language(*exact);
  std::vector<const LanguageName*> found;
  for (const LanguageName& language : kLanguageNames) {
    std::vector<std::string_view> codes = {BaseOf(language.code)};
    AddParts(language.short_codes, ',', &codes);
    if (std::ranges::find(codes, BaseOf(code)) != codes.end()) {
      found.push_back(&language);
    }
  }
  const auto has_script = [&](const LanguageName* language) {
    return SuffixOf(language->code) == SuffixOf(code);
  };
  const bool is_of_script = std::ranges::any_of(found, has_script);
  for (const LanguageName* language : found) {
    if (!is_of_script || has_script(language)) on_language(*language);
  }
}

}  // namespace

std::vector<std::string_view> LanguageNamesOf(std::string_view code) {
  std::vector<std::string_view> names = {code, BaseOf(code)};
  ForLanguages(code, [&](const LanguageName& language) {
    names.push_back(BaseOf(language.code));
    AddParts(language.short_codes, ',', &names);
    AddParts(language.names, '|', &names);
  });
  return names;
}

std::string_view EnglishNameOf(std::string_view code) {
  std::string_view name;
  ForLanguages(code, [&](const LanguageName& language) {
    std::vector<std::string_view> names;
    AddParts(language.names, '|', &names);
    // The last of several is the least particular.
    const bool is_of_script = SuffixOf(code) == SuffixOf(language.code);
    if (name.empty()) name = is_of_script ? names[0] : names.back();
  });
  return name;
}

}  // namespace espalier
