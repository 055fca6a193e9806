BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79532697126228880882e+09,'officer','population.create','people',NULL,NULL,'106dba75119b7e81520134c794b53547','{"accounting":"individual","adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"4b94d7f88e2851f942ab220d9ebba505ac5d492dc101858ab0ef7acc9b5be385","simulated":false,"unit":"user"}','8e6e819a0cca739899c84383c3a3203520a135befb703ee91d29887bbd8ec458','6de235d59efe3de50468dcad4272f41e8e7f9f744fecd209dd9ca6e49ec92ada');
INSERT INTO "audit" VALUES(2,1.79532697130861234671e+09,'officer','population.raise','people',NULL,NULL,'62216d483674603775f81eb76e3dec93','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','6de235d59efe3de50468dcad4272f41e8e7f9f744fecd209dd9ca6e49ec92ada','7957aee70b75aebd52e046649f5784c5b2bd57d0b9c83109ef10caaf3af57e39');
INSERT INTO "audit" VALUES(3,1.79532697135297298436e+09,'officer','population.create','others',NULL,NULL,'7d283f9c0685d39e7bfac9ff05f065d3','{"accounting":"worst-case","adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"4e8d8d424335b409732e5211183ac7b971d286d70f36eb6319fba83066f0028e","simulated":false,"unit":"user"}','7957aee70b75aebd52e046649f5784c5b2bd57d0b9c83109ef10caaf3af57e39','fc3443e20402c3fb58aaec23073c810868d57f43662e1ba4baa7ae66969ed914');
INSERT INTO "audit" VALUES(4,1.79532697141159486775e+09,'officer','population.close','others',NULL,NULL,'29f3b1f01bff292adbd08a0cb5edc8d0','{}','fc3443e20402c3fb58aaec23073c810868d57f43662e1ba4baa7ae66969ed914','7ed2af59e1dbdc23ef67b2136950c4118bd37b6cc35b2e186d273d4f553517db');
INSERT INTO "audit" VALUES(5,1.7953269714274027347e+09,'officer','token.create',NULL,NULL,NULL,'713cfc44ad6f154157da52809a83ae0f','{"digest":"20c2461a7f9bd79c0f379eb8e3ab96c9cb0a9ddc8aaab5a434758ef345fd59cb","expires_at":null,"id":"0d475cb9ba97","name":"page","scopes":["read"]}','7ed2af59e1dbdc23ef67b2136950c4118bd37b6cc35b2e186d273d4f553517db','ad7404221cc164bee2986630043a2942c7233a5a5dd95a573b6956443e253387');
INSERT INTO "audit" VALUES(6,1.79532697146247982979e+09,'officer','token.create',NULL,NULL,NULL,'8648f918e28dc56214c65fea995f795e','{"digest":"f2cfb441e630bb2f2f77fd279497c536bee9d13c85d5c8724643d2696dc20cff","expires_at":null,"id":"0de62710a815","name":"office","scopes":["read","admin"]}','ad7404221cc164bee2986630043a2942c7233a5a5dd95a573b6956443e253387','21830f32843837e2ea241e4aa676d30c6b3053107f02338863ec2f7bdd647714');
INSERT INTO "audit" VALUES(7,1.79532697147940659525e+09,'officer','token.revoke',NULL,NULL,NULL,'a2377c6fc945c56e92ad07bba8801ac8','{"id":"0d475cb9ba97"}','21830f32843837e2ea241e4aa676d30c6b3053107f02338863ec2f7bdd647714','6e148fae485e9617e168155ea605d2e10ec5163c28808e240b48df9a7b70801e');
INSERT INTO "audit" VALUES(8,1.7953269715092849731e+09,'test','run.start','people','3c715a0b1e09',NULL,'0800666c574fc506e32bef4e1d16bc38','{"accounting":"worst-case","format":1,"key_commitment":"3712153272b082d0053aaa448fcfe6a640f8d0f2a5ff452eac15320d7709b8e4","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6e148fae485e9617e168155ea605d2e10ec5163c28808e240b48df9a7b70801e','e3c29663257be3fefa7e68d1ddea1f4c94fa8faa81880f2da61dc5d35de28044');
INSERT INTO "audit" VALUES(9,1.79532697158532667165e+09,'run 3c715a0b1e09','users.register','people','3c715a0b1e09',NULL,'cfbe0ef7c366408b66280767e1c712c4','{"count":40,"first":0,"hashes":"383b32f79fb42f9a5199427299f1985003d22112e39a48269aa4f1f5b945df1d"}','e3c29663257be3fefa7e68d1ddea1f4c94fa8faa81880f2da61dc5d35de28044','ff35cf7f389021ad01dac496ab1c7229bcc7879ffe8344101d277b08022c4cb7');
INSERT INTO "audit" VALUES(10,1.79532697162450861926e+09,'run 3c715a0b1e09','round.open','people','3c715a0b1e09',0,'2d5527ab86ba732c0fbe7cb54f13f3ae','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','ff35cf7f389021ad01dac496ab1c7229bcc7879ffe8344101d277b08022c4cb7','b30b5027b2133f8ffb675a2880b5c60efea5aceb63a9a994382f3e2476ada57e');
INSERT INTO "audit" VALUES(11,1795326971.68407,'run 3c715a0b1e09','round.commit','people','3c715a0b1e09',0,'d6cebea0e860d963bf7307e6577766bd','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','b30b5027b2133f8ffb675a2880b5c60efea5aceb63a9a994382f3e2476ada57e','b960a091a3ddabd054b4df60728df761781e4d642bf342d0214609bc1eed6946');
INSERT INTO "audit" VALUES(12,1.79532697244257140158e+09,'run 3c715a0b1e09','round.open','people','3c715a0b1e09',1,'c5869fa2c7bb58e21e28b0677ed4c74b','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','b960a091a3ddabd054b4df60728df761781e4d642bf342d0214609bc1eed6946','a321fbb1cb50ada80ececea4ebea5b903be50928a82fe915364f57c57748c62b');
INSERT INTO "audit" VALUES(13,1.79532697245994091032e+09,'run 3c715a0b1e09','round.commit','people','3c715a0b1e09',1,'86ce7be1c8bbeaa290e6593c05b7941e','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','a321fbb1cb50ada80ececea4ebea5b903be50928a82fe915364f57c57748c62b','b415fa5407e19fb7f5590a7cab5cb6d81543ab55ed205ecafa8e0a55ca2f3d80');
INSERT INTO "audit" VALUES(14,1.79532697250653243067e+09,'run 3c715a0b1e09','round.open','people','3c715a0b1e09',2,'c5bbc72da00e6f5cc7dba63c6c0b2496','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','b415fa5407e19fb7f5590a7cab5cb6d81543ab55ed205ecafa8e0a55ca2f3d80','aeedd931cdf2c4c20a39543ee6caea16b0aa0c9e1faa825a6eb2f00faab09c19');
INSERT INTO "audit" VALUES(15,1.79532697251969552043e+09,'run 3c715a0b1e09','round.commit','people','3c715a0b1e09',2,'483a69d70659749fd6c03f4015c400f2','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','aeedd931cdf2c4c20a39543ee6caea16b0aa0c9e1faa825a6eb2f00faab09c19','548ada975a5b1b0604aa5472c5a2d63d1610d0ab69f8f231116a23347dd49393');
INSERT INTO "audit" VALUES(16,1.79532697255044460297e+09,'3c715a0b1e09','run.finish','people','3c715a0b1e09',NULL,'f9e81c9f7c8424e157b3081b1122c06f','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','548ada975a5b1b0604aa5472c5a2d63d1610d0ab69f8f231116a23347dd49393','6fdcc30fb25593d9ea308f2045b448a30606545b96f03e1ecbfe85b5e4a90111');
INSERT INTO "audit" VALUES(17,1.7953269725787730217e+09,'test','run.start','people','be562102897a',NULL,'1e1d121e709f55d6c01a44d81b439121','{"accounting":"individual","format":1,"key_commitment":"fbd75907c73c8b0e54432653ac3e07f39c45f290b88a254a01ecb34e106aa383","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6fdcc30fb25593d9ea308f2045b448a30606545b96f03e1ecbfe85b5e4a90111','6c663105f7d71da41443fa779c06c43bf113e137e8efe46b029cf2fc604a2d14');
INSERT INTO "audit" VALUES(18,1.79532697260445475578e+09,'run be562102897a','round.open','people','be562102897a',0,'0000418691baf01aa8dcc20271524485','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','6c663105f7d71da41443fa779c06c43bf113e137e8efe46b029cf2fc604a2d14','321c7547781ad482a76873d8c3aefadd18a3b9cf03ed33196a249d76255f7eed');
INSERT INTO "audit" VALUES(19,1.7953269726439404488e+09,'run be562102897a','round.commit','people','be562102897a',0,'6385ae55d3c846ae9f12de5b11d29580','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','321c7547781ad482a76873d8c3aefadd18a3b9cf03ed33196a249d76255f7eed','1f8a4c59d5df19cda82ce0f29df62ff7923db853ae2c38e7fb9926c6ceb62d5d');
INSERT INTO "audit" VALUES(20,1.79532697269460129736e+09,'be562102897a','run.finish','people','be562102897a',NULL,'b5b1f26a378368199eca7f20ad424a01','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','1f8a4c59d5df19cda82ce0f29df62ff7923db853ae2c38e7fb9926c6ceb62d5d','b42ab4cf94a8fb2242089ff324ffffb885e9b0090e0336f036295c80a85e40fe');
INSERT INTO "audit" VALUES(21,1.79532697273142957681e+09,'test','run.start','people','8790c1190120',NULL,'6586ff43d30b4f031bd28362f1a6756b','{"accounting":"individual","format":1,"key_commitment":"5a95c5b1abb561bda3e362e966d3553792639eb803e6034c299972c96edcee0c","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','b42ab4cf94a8fb2242089ff324ffffb885e9b0090e0336f036295c80a85e40fe','8f088920e225400e2915798131c2c065103a8ef235104efab161d07dc24571e5');
INSERT INTO "audit" VALUES(22,1.79532697275991272927e+09,'run 8790c1190120','round.open','people','8790c1190120',0,'9162aa54aa56209a29df979644015362','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','8f088920e225400e2915798131c2c065103a8ef235104efab161d07dc24571e5','d2572252a955d15c5b822e0ddc370878ad492a1459f1588e15bef20ab73cb924');
INSERT INTO "audit" VALUES(23,1.79532697279099535936e+09,'run 8790c1190120','round.commit','people','8790c1190120',0,'41b2dc21082d6c6637f6451d6e050a21','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','d2572252a955d15c5b822e0ddc370878ad492a1459f1588e15bef20ab73cb924','9741ecb5a304d244d5f19292a6d938664733c8fb1c94d15c0fae8038af25ce02');
INSERT INTO "audit" VALUES(24,1.795326972822614193e+09,'8790c1190120','run.finish','people','8790c1190120',NULL,'7952ce0554f9fc176a41d3cec023d731','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','9741ecb5a304d244d5f19292a6d938664733c8fb1c94d15c0fae8038af25ce02','025c92819d556425f5fc2d56d1c7e8c9edb84c51cb864f6d7bc749e34e455949');
INSERT INTO "audit" VALUES(25,1.7953269728627128601e+09,'trainer','charge.reserve','people',NULL,NULL,'de1cbfcec09c3a6578a8f13a52b6e9fe','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','025c92819d556425f5fc2d56d1c7e8c9edb84c51cb864f6d7bc749e34e455949','43603d2092b26a30aa0b20c7f4c95c28e0b4c2367c5898729fd0b8afba0ab241');
INSERT INTO "audit" VALUES(26,1.79532697291514658924e+09,'trainer','charge.commit','people',NULL,NULL,'bd642682506363fcc6a19b0b9cace581','{"key":"dp-sgd-1"}','43603d2092b26a30aa0b20c7f4c95c28e0b4c2367c5898729fd0b8afba0ab241','ba44a57ac9ae8c168a52d02a6b993f898590215dab47e4696baae10f16ec87c6');
INSERT INTO "audit" VALUES(27,1.79532697305588912961e+09,'trainer','charge.reserve','people',NULL,NULL,'4508ea5af9355de1140b21de5bad2f87','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','ba44a57ac9ae8c168a52d02a6b993f898590215dab47e4696baae10f16ec87c6','6681ff0ee938541609c642023741ebdf1e488edfb675202f94fd7c8c60b4890b');
INSERT INTO "audit" VALUES(28,1.79532697310660052303e+09,'test','run.start','people','1a3aa9940afd',NULL,'f44df74fe2fdd1443c6569caf7974999','{"accounting":"individual","format":1,"key_commitment":"ab4e30993354abf0b8e17c384692e0dee26f0f5c7efccaea39950df356b73f66","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6681ff0ee938541609c642023741ebdf1e488edfb675202f94fd7c8c60b4890b','3d2f3237afeda756ec1aba3d4bc9f9fc930ac59c4c2daf272884a04dadf0501b');
INSERT INTO "audit" VALUES(29,1.79532697315224266053e+09,'run 1a3aa9940afd','round.open','people','1a3aa9940afd',0,'db7d1f7655a74951df432b20c84e0cbf','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','3d2f3237afeda756ec1aba3d4bc9f9fc930ac59c4c2daf272884a04dadf0501b','3a1a3f308f055864e9095ca48f001b3e7f092b3391d29c136d1ed554ef5fef8e');
INSERT INTO "audit" VALUES(30,1.79532697320124912262e+09,'run 1a3aa9940afd','round.commit','people','1a3aa9940afd',0,'4cbb116275c4be42d17cc1d7b149787f','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','3a1a3f308f055864e9095ca48f001b3e7f092b3391d29c136d1ed554ef5fef8e','52755d358c3b6b1bec9eef8c92baebe9fc322e328c64d8b144c2a3d9278fa459');
INSERT INTO "audit" VALUES(31,1.7953269732320222855e+09,'run 1a3aa9940afd','run.interrupt','people','1a3aa9940afd',NULL,'bfe9f592b98032078948774e2bf5613d','{"message":""}','52755d358c3b6b1bec9eef8c92baebe9fc322e328c64d8b144c2a3d9278fa459','c059153942cdb4379b94b603743f4f25866224b6040da9c8a3ee510b5876017f');
INSERT INTO "audit" VALUES(32,1.79532697326537394526e+09,'test','run.start','people','010f3154bc5c',NULL,'a493ea6eed9e1030ab5bf685cd8b871b','{"accounting":"worst-case","format":1,"key_commitment":"badfde4784ca62b57baf0cd34766e5eff2c27fa067cf744c251c99481bec89d5","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','c059153942cdb4379b94b603743f4f25866224b6040da9c8a3ee510b5876017f','3d0216a869581c0a7b4f5ea747bc7fe0820fb2edf009243898cb83c1e2ab128b');
INSERT INTO "audit" VALUES(33,1.79532697332790088656e+09,'run 010f3154bc5c','round.open','people','010f3154bc5c',0,'073b0cd2d8192190d800468734699106','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','3d0216a869581c0a7b4f5ea747bc7fe0820fb2edf009243898cb83c1e2ab128b','7645a5fe0d83c5882e1814e549f4ef266bf263484a9352ad9499161f30b22458');
INSERT INTO "audit" VALUES(34,1.79532697341792058941e+09,'run 010f3154bc5c','round.void','people','010f3154bc5c',0,'d684ecb8e6c35629cf6ea90803c15cbe','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','7645a5fe0d83c5882e1814e549f4ef266bf263484a9352ad9499161f30b22458','5396b6bf3481a030cb78f41ee2010d34134529469961604622e091abcb6f0643');
INSERT INTO "audit" VALUES(35,1.79532697357173848156e+09,'run 010f3154bc5c','round.open','people','010f3154bc5c',0,'e3f1b47342d92e6394488ca0368e5983','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','5396b6bf3481a030cb78f41ee2010d34134529469961604622e091abcb6f0643','feddb7ccbea60b371ea0562b0a7bb01e39afa642064ae7501eb9603680ed35e8');
INSERT INTO "audit" VALUES(36,1.7953269735799131393e+09,'run 010f3154bc5c','round.commit','people','010f3154bc5c',0,'6a8fa93126a60d83412087c921629da6','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','feddb7ccbea60b371ea0562b0a7bb01e39afa642064ae7501eb9603680ed35e8','5b914c4712238c889f3004174ddaa376864f2d2fa8b00ebe7d81730b8e245106');
INSERT INTO "audit" VALUES(37,1.79532697358998036382e+09,'run 010f3154bc5c','users.register','people','010f3154bc5c',NULL,'964060d5c2cdae221ef8c66a5043a80a','{"count":10,"first":40,"hashes":"f68f2884034fafeec2021e94d6e8f7ffe2bb3f52eb2e72b4cbbd1e82c3e58747","pledged":{"1a3aa9940afd":274877906944}}','5b914c4712238c889f3004174ddaa376864f2d2fa8b00ebe7d81730b8e245106','92036a2241a1471084efec2506e64f919bc3046157e9c70561e842b6db6fc1d4');
INSERT INTO "audit" VALUES(38,1.79532697359745168686e+09,'run 010f3154bc5c','round.open','people','010f3154bc5c',1,'3e7aff785c591768b70300b81ca0089a','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','92036a2241a1471084efec2506e64f919bc3046157e9c70561e842b6db6fc1d4','0f3c2fad3750dda2c65e25a4bbb6bf133f557d92c276c20c92b3befe5f5b55b6');
CREATE TABLE charges (
	id INTEGER NOT NULL, 
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (id), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_charges_population_id_key UNIQUE (population_id, "key")
);
INSERT INTO "charges" VALUES(1,1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.7953269728627128601e+09,1.79532697291514658924e+09);
INSERT INTO "charges" VALUES(2,1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79532697305588912961e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'d75ab7dd87e56a85747d7943875072da',38,'0f3c2fad3750dda2c65e25a4bbb6bf133f557d92c276c20c92b3befe5f5b55b6');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79532697255044460297e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79532697269460129736e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.795326972822614193e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.7953269732320222855e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79532697359745168686e+09,30.0);
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "odometers" VALUES(1,0,40,X'0178016360C00D14A052301AA6129D0F131F8934006AC00061');
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(4,2,0,2,X'0178DA6366040000090005',X'01780163606060500062105000620002100041');
INSERT INTO "participations" VALUES(5,3,0,1,X'0178DA63030000070007',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(6,4,0,1,X'0178DA63010000050005',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(8,5,0,1,X'0178DA63050000060006',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "pledges" VALUES(4,0,40,X'0178016360606070006210700093A33429E10000419A0A01');
INSERT INTO "pledges" VALUES(4,40,10,X'017801636060607000621070009394D10064500281');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'9141E751108BEBF3AA15A5F967B49D9C',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79532697126228880882e+09,'officer',8.67361737988403508001e-25,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'248C31966470B6371A834C0E19A53406',0,'{"mu_squared":0.0,"sampled":[]}',1.79532697135297298436e+09,'officer',1.0e-07,'worst-case');
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532697162450861926e+09,1795326971.68407,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79532697244257140158e+09,1.79532697245994091032e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532697250653243067e+09,1.79532697251969552043e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79532697260445475578e+09,1.7953269726439404488e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79532697275991272927e+09,1.79532697279099535936e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79532697315224266053e+09,1.79532697320124912262e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532697332790088656e+09,1.79532697341792058941e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79532697357173848156e+09,1.7953269735799131393e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79532697359745168686e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'3c715a0b1e09',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','3712153272b082d0053aaa448fcfe6a640f8d0f2a5ff452eac15320d7709b8e4',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.7953269715092849731e+09,'test',1.79532697255044460297e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'be562102897a',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','fbd75907c73c8b0e54432653ac3e07f39c45f290b88a254a01ecb34e106aa383',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.7953269725787730217e+09,'test',1.79532697269460129736e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'8790c1190120',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','5a95c5b1abb561bda3e362e966d3553792639eb803e6034c299972c96edcee0c',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532697273142957681e+09,'test',1.795326972822614193e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'1a3aa9940afd',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','ab4e30993354abf0b8e17c384692e0dee26f0f5c7efccaea39950df356b73f66',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79532697310660052303e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'010f3154bc5c',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','badfde4784ca62b57baf0cd34766e5eff2c27fa067cf744c251c99481bec89d5',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532697326537394526e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('0d475cb9ba97','page','20c2461a7f9bd79c0f379eb8e3ab96c9cb0a9ddc8aaab5a434758ef345fd59cb','read',1.7953269714274027347e+09,'officer',NULL,1.79532697147940659525e+09);
INSERT INTO "tokens" VALUES('0de62710a815','office','f2cfb441e630bb2f2f77fd279497c536bee9d13c85d5c8724643d2696dc20cff','read admin',1.79532697146247982979e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'1D9CF4C4744A6755A9E3268FEA48487756FE53BC3BD78A64BDBE3EB805B54C67BF26E3691D26481027555375EDA6676EFE2BB05C061776BB3E1A271A093F236C5AF5D182BF9789B7A661270A3F36D5E7E2312DBF37BD549AD5C60184C93F25494CA475A7AD335EB259F0DE4E4F1EEDB0CD5A4545476D598740D989B259E5BE16B27BE020C13DD963EB7DD4119C534741D3615767B4C52288B263BB3DA57567862CE16A644EA6D7D97C7B1C88C0214466303AA2EE35C7F015384627CC9E5797D592EB16DF1927B4A60E2266195C535948EB8FD5918CBE95FB9A2D725945EBDB1CDBA8CEAF32D2C30D78D3296FF7F943163259024F54B546FDC2D2B34E5F7279F95FB7D3B8FBD883E415A4CE86B21612970E582E183971B1193C691F82B7121E6754E1C9E882A9A7CC5D0A08FE26297450EF505507A5107FFD7CDA0FAFF9C75912');
INSERT INTO "users" VALUES(1,40,10,X'15ADEBEF16669F4FEBB1D82DF04D6317C020C65828EE13B40C753221475A0C4E8E6E78AFB485DB252842ACE41355F3812D283B29B691F5C438C594BE1D1C11AF4A1A976761194DE3E866C43ED2A034EC');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
COMMIT;
