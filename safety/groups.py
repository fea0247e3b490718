"""Groups of people that hate and generalisations are about, in English, Spanish and German. For patterns on lower case.

Every group stands in each rule alike, majorities too: what is said of one is judged as if it were said of another.
"""

ENGLISH = (
    r"(?:wom[ae]n|females|girls|men|males|boys|gays?|gay people|gay men|lesbians?|homosexuals?|bisexuals?|"
    r"trans(?:gender)? "
    r"(?:people|women|men|persons)|transgenders?|transsexuals?|queers?|lgbt\w*(?: people)?|"
    r"straight people|"
    r"jews|jewish people|muslims?(?: people)?|christians|catholics|hindus|sikhs|buddhists|atheists|"
    r"mormons|"
    r"black(?: people|s| women| men| folks?)|white(?: people|s| women| men| folks?)|asians?(?: people)?|"
    r"latin[oa]s|latinx|"
    r"hispanics|arabs|africans|african americans|native americans|indigenous people|aboriginals|roma|"
    r"romani(?: people)?|"
    r"gyps(?:ies|y people)|mexicans|chinese(?: people)?|indians|pakistanis|turks|poles|russians|"
    r"ukrainians|syrians|afghans|"
    r"somalis|nigerians|germans|americans|israelis|palestinians|immigrants|migrants|refugees|"
    r"asylum seekers|foreigners|"
    r"disabled people|people with disabilities|the disabled|autistic people|autistics|blind people|"
    r"deaf people|fat people|"
    r"old people|the elderly|boomers|poor people|the poor|homeless people|the homeless)"
)
SPANISH = (
    r"(?:mujeres|hombres|niñas|gays|homosexuales|lesbianas|maricas|maricones|bisexuales|trans|"
    r"transexuales|personas trans|"
    r"judí[oa]s|musulman[ea]s|moros|cristianos|católicos|negr[oa]s|blanc[oa]s|asiáticos|latin[oa]s|árabes|"
    r"african[oa]s|"
    r"indígenas|gitan[oa]s|mexican[oa]s|chin[oa]s|panchitos|sudacas|turcos|rus[oa]s|inmigrantes|migrantes|"
    r"refugiados|"
    r"extranjeros|discapacitados|autistas|ciegos|sordos|gord[oa]s|viej[oa]s|pobres|mendigos|españoles|"
    r"alemanes|american[oa]s)"
)
GERMAN = (
    r"(?:frauen|männer|mädchen|schwulen?|lesben|homosexuellen?|bisexuellen?|transsexuellen?|transmenschen|"
    r"transfrauen|"
    r"juden|muslimen?|moslems?|christen|katholiken|schwarzen?|weißen|asiaten|araber|afrikaner|roma|"
    r"zigeuner|sinti|mexikaner|"
    r"chinesen|türken|polen|russen|syrer|afghanen|ausländer|einwanderer|migranten|flüchtlinge|asylanten|"
    r"behinderten?|"
    r"autisten|blinden?|gehörlosen|dicken|alten leute|alten|armen|obdachlosen?|deutschen|amerikaner)"
)
