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
INSERT INTO "audit" VALUES(1,1.79532754594364666938e+09,'officer','population.create','people',NULL,NULL,'dc2fcab9b10378156fe104124a344e32','{"accounting":"individual","adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"7056b2708e75b5d88a4916da523856150b4fac32d9382dae7590cb523155c361","simulated":false,"unit":"user"}','395dce0bbda76a59e78ec8a4e57c9d755a0cd791c25fc034a445f2a8c15f7394','7d44ad014164bb0f5ed021b8f57d4b5f7bc67e1576ebaf1161b2889c650695d0');
INSERT INTO "audit" VALUES(2,1.79532754596838021281e+09,'officer','population.raise','people',NULL,NULL,'0375b139e340d639f47901446210aa49','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','7d44ad014164bb0f5ed021b8f57d4b5f7bc67e1576ebaf1161b2889c650695d0','9827f97a9b3f9d61ff55fe6c48f1ab84bb169ac32fe2fda9c3cba13a5f37c9dc');
INSERT INTO "audit" VALUES(3,1.79532754597874021529e+09,'officer','population.create','others',NULL,NULL,'ffd89792f4f6f646d2f616a6e74d35a5','{"accounting":"worst-case","adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"37024b6b2d399d479e341b505ee5ad4054694183c25648b07b2abd614c7aaa8d","simulated":false,"unit":"user"}','9827f97a9b3f9d61ff55fe6c48f1ab84bb169ac32fe2fda9c3cba13a5f37c9dc','5a6a42f60328c2aa50395172e9741a9ca744e52f0d258737b20c6333cd920a6e');
INSERT INTO "audit" VALUES(4,1.79532754599905419352e+09,'officer','population.close','others',NULL,NULL,'e41ff4dddfa8e17af67a6025d7957ea3','{}','5a6a42f60328c2aa50395172e9741a9ca744e52f0d258737b20c6333cd920a6e','7ba8937c2deb4792bdd9e61c4b43b742b4a7a9ef85215b91be383dc245e3185a');
INSERT INTO "audit" VALUES(5,1.79532754600292181971e+09,'officer','token.create',NULL,NULL,NULL,'27a0ae93a8586e60adacedb7686153ce','{"digest":"1f50afcac846a807d6108c492fa56cac0bd1535243f30c0a7cd51221634aaa0e","expires_at":null,"id":"6bb861519136","name":"page","scopes":["read"]}','7ba8937c2deb4792bdd9e61c4b43b742b4a7a9ef85215b91be383dc245e3185a','086e119eafd0d8b3dbde27d9dc3689fa5090aa2ac50a17ece5b39cb442e45cec');
INSERT INTO "audit" VALUES(6,1.79532754600458621975e+09,'officer','token.create',NULL,NULL,NULL,'512edf6676242e51264ed46f5feb55a5','{"digest":"a936a22afc6bd8ccfd8e27dee8f859a5ad989729262e3328fd932035a53873b1","expires_at":null,"id":"781db3208c0c","name":"office","scopes":["read","admin"]}','086e119eafd0d8b3dbde27d9dc3689fa5090aa2ac50a17ece5b39cb442e45cec','248445790fbfd7955aa9f15346351290702864633ea89f876ba8c272955fc9de');
INSERT INTO "audit" VALUES(7,1.79532754601811313632e+09,'officer','token.revoke',NULL,NULL,NULL,'081823c7ac3e97528c907fb2d3a75064','{"id":"6bb861519136"}','248445790fbfd7955aa9f15346351290702864633ea89f876ba8c272955fc9de','dce96b9fc22c6fb02682e840abc665efbf25c64bf73fd53e30c98021ca96e052');
INSERT INTO "audit" VALUES(8,1.7953275460265688896e+09,'test','run.start','people','3859cac9b702',NULL,'b5902afdaad1884368544f7cda4bd59d','{"accounting":"worst-case","format":1,"key_commitment":"bb8877cb123400746368c508339e15901bd6f4b1d70611807c267a0408e4a040","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','dce96b9fc22c6fb02682e840abc665efbf25c64bf73fd53e30c98021ca96e052','aed36d95384d907140cb07f6fe293b57622fa8b67ef9f6be78fba110c48f3f7f');
INSERT INTO "audit" VALUES(9,1.79532754604143190381e+09,'run 3859cac9b702','users.register','people','3859cac9b702',NULL,'3fb9632ab7aca8b12b3863be9c1bc50d','{"count":40,"first":0,"hashes":"636cad66017d48e66a1d21f7f2b471835a429ab4a60abdebeefcc63815e6f393"}','aed36d95384d907140cb07f6fe293b57622fa8b67ef9f6be78fba110c48f3f7f','e864bf99b740918968300ba4869c5d5d378f22d8c269bf6454bb629f18e41e7a');
INSERT INTO "audit" VALUES(10,1.79532754606673073771e+09,'run 3859cac9b702','round.open','people','3859cac9b702',0,'bec990464719cd9c747a2e096586279b','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','e864bf99b740918968300ba4869c5d5d378f22d8c269bf6454bb629f18e41e7a','065a28b119661c1cf0c6093ac8815e0d01fba535cf793f1921b6ac7563f42350');
INSERT INTO "audit" VALUES(11,1.79532754607569432258e+09,'run 3859cac9b702','round.commit','people','3859cac9b702',0,'ea291980c3854acd04ca0f729ca9af3e','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','065a28b119661c1cf0c6093ac8815e0d01fba535cf793f1921b6ac7563f42350','efe36ba36efea666438926c5c2f58fdb022a7e96e1b5cdf3c4adcd347446222a');
INSERT INTO "audit" VALUES(12,1.795327546089892149e+09,'run 3859cac9b702','round.open','people','3859cac9b702',1,'4f63ebe04ca7bfb27496d283222958a6','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','efe36ba36efea666438926c5c2f58fdb022a7e96e1b5cdf3c4adcd347446222a','654a363e933d8074fe21e9256bb0ba400baa21d1b8bc05a3cbf634d8580d35e7');
INSERT INTO "audit" VALUES(13,1.79532754609631776815e+09,'run 3859cac9b702','round.commit','people','3859cac9b702',1,'aa58596ff95d20b4f332106da83cce9b','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','654a363e933d8074fe21e9256bb0ba400baa21d1b8bc05a3cbf634d8580d35e7','d4abfc3e7766d12aebda1fdcb62c77f8809224005e618165b9d334635368b5e1');
INSERT INTO "audit" VALUES(14,1.79532754610630440714e+09,'run 3859cac9b702','round.open','people','3859cac9b702',2,'f1ac70fb362961841da8df3cd8163376','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','d4abfc3e7766d12aebda1fdcb62c77f8809224005e618165b9d334635368b5e1','a0791e140fcd86d46be34e20b83695185aede09751aaf55d2c29767767e39532');
INSERT INTO "audit" VALUES(15,1.7953275461184642315e+09,'run 3859cac9b702','round.commit','people','3859cac9b702',2,'04dafc6e6140d65ecdb5544e91440b56','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','a0791e140fcd86d46be34e20b83695185aede09751aaf55d2c29767767e39532','e361e8e5cdc3c241066cb233786268eb6a34b8822b849476797787c7843541d0');
INSERT INTO "audit" VALUES(16,1.79532754612618851656e+09,'3859cac9b702','run.finish','people','3859cac9b702',NULL,'047b27933a96331c93f24f4f2d57a822','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','e361e8e5cdc3c241066cb233786268eb6a34b8822b849476797787c7843541d0','582d022473e4b773f8680340d0193be7b045a477daf8cbd3dd9d7b742e84aa1f');
INSERT INTO "audit" VALUES(17,1.7953275461430006027e+09,'test','run.start','people','bef201e0a093',NULL,'2cd15ccfb7f357a5478d1209a2b7de03','{"accounting":"individual","format":1,"key_commitment":"d0fd90a7c2c184fefa2d677bdb7c7771287cf73580e1af8ce8c4cd6f4a5ddf54","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','582d022473e4b773f8680340d0193be7b045a477daf8cbd3dd9d7b742e84aa1f','d108bfe16a5b66fd37e1665725fe5b0e1c1c86be5d55b0d0a73e6de2f57b4e57');
INSERT INTO "audit" VALUES(18,1.79532754640726590158e+09,'run bef201e0a093','round.open','people','bef201e0a093',0,'71acddef7541968e78e9afbbc5dbd597','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','d108bfe16a5b66fd37e1665725fe5b0e1c1c86be5d55b0d0a73e6de2f57b4e57','bc6b0a0b88dba7b82f6301688bddd676b22cdf68f7b5b91d57a39fc989f25df7');
INSERT INTO "audit" VALUES(19,1.7953275464197769165e+09,'run bef201e0a093','round.commit','people','bef201e0a093',0,'55ef4004cf2c690970f4c9324ad9a310','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','bc6b0a0b88dba7b82f6301688bddd676b22cdf68f7b5b91d57a39fc989f25df7','f9786a9ea2688c2573428b6adf886e7f5a357c2848801bdec5812cf10192520c');
INSERT INTO "audit" VALUES(20,1.79532754643418717387e+09,'bef201e0a093','run.finish','people','bef201e0a093',NULL,'89418f472582aea195a23c11396c9052','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','f9786a9ea2688c2573428b6adf886e7f5a357c2848801bdec5812cf10192520c','56f68aead772972d8670be5df5b9e52c883e7ecf27e88ee9b541408d53e79f1f');
INSERT INTO "audit" VALUES(21,1.79532754644294595715e+09,'test','run.start','people','c7937c6e7c8c',NULL,'ecdf6a6377b09750f6b83437039c9600','{"accounting":"individual","format":1,"key_commitment":"3097c1211a8e064a57708d27d10b289c2daa94d687494c180259439f62c3e9b7","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','56f68aead772972d8670be5df5b9e52c883e7ecf27e88ee9b541408d53e79f1f','084a46d460d0feeb7bea1bd43456968a7183d297b5b2f128d81ae328f8076d3d');
INSERT INTO "audit" VALUES(22,1.79532754645939207072e+09,'run c7937c6e7c8c','round.open','people','c7937c6e7c8c',0,'cef6712b96bab9e5eb25c0033cc6e8af','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','084a46d460d0feeb7bea1bd43456968a7183d297b5b2f128d81ae328f8076d3d','70d7a239e9962d6e900bbf554ee83c4b349c69a898edcc42d4012e84dc3c2e7e');
INSERT INTO "audit" VALUES(23,1.79532754646817731855e+09,'run c7937c6e7c8c','round.commit','people','c7937c6e7c8c',0,'81e1bca84f4aa8d1f52bcc3f42735e9d','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','70d7a239e9962d6e900bbf554ee83c4b349c69a898edcc42d4012e84dc3c2e7e','b72ea354f6f196b748bc2fc5c0d5c0156d72a84bbfad15c24ba98ff513c93654');
INSERT INTO "audit" VALUES(24,1.79532754647664546964e+09,'c7937c6e7c8c','run.finish','people','c7937c6e7c8c',NULL,'4b716e0ff9f4dd51c44ffdb7ce109780','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','b72ea354f6f196b748bc2fc5c0d5c0156d72a84bbfad15c24ba98ff513c93654','c33cc9e55cfe5d6ef849753963b25e3ec3e45f7d0dbffd0fe2f536767357a6ef');
INSERT INTO "audit" VALUES(25,1.79532754649160194394e+09,'trainer','charge.reserve','people',NULL,NULL,'064797ec7f6b0d6c241f63544c20b957','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','c33cc9e55cfe5d6ef849753963b25e3ec3e45f7d0dbffd0fe2f536767357a6ef','ee5b029b4b2bd7507b99500f9c7fb4b76de3cb5d123127e732c124905fd37cad');
INSERT INTO "audit" VALUES(26,1.79532754650536751752e+09,'trainer','charge.commit','people',NULL,NULL,'4911a3c508724629a0b34fcbff339987','{"key":"dp-sgd-1"}','ee5b029b4b2bd7507b99500f9c7fb4b76de3cb5d123127e732c124905fd37cad','4f1221bd89f6ea6d4ba09e8db4310dbec0b8d24611518adf06fca638afe8cce4');
INSERT INTO "audit" VALUES(27,1.79532754654016375546e+09,'trainer','charge.reserve','people',NULL,NULL,'47a3aff3b32f2f77f5e6addf94f9b8a0','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','4f1221bd89f6ea6d4ba09e8db4310dbec0b8d24611518adf06fca638afe8cce4','d01fd80b8c0b767aa43515f03b83c3a5e886ce1fcf55ad530f86082ace61b1bf');
INSERT INTO "audit" VALUES(28,1.79532754655639195445e+09,'test','run.start','people','270f386da831',NULL,'d1cbe9cd5390736dec6fd711d1f34b9d','{"accounting":"individual","format":1,"key_commitment":"89e2bc03389fc9c300371c1dcd4005d7ad23a22073e9d30ecf2c99f96384b8d7","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','d01fd80b8c0b767aa43515f03b83c3a5e886ce1fcf55ad530f86082ace61b1bf','02567779494332dcd4f6450b68d966a4bfa9c675b06f710d93f8488f38a654b2');
INSERT INTO "audit" VALUES(29,1.79532754657337379452e+09,'run 270f386da831','round.open','people','270f386da831',0,'f26fd3585d78bca545f4e2b351da2354','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','02567779494332dcd4f6450b68d966a4bfa9c675b06f710d93f8488f38a654b2','89f91624f7bc92acdb4c0982def777f12f2233c5924ba10164c93268bc18d0da');
INSERT INTO "audit" VALUES(30,1.79532754658643770211e+09,'run 270f386da831','round.commit','people','270f386da831',0,'99965de271d07d827ea28effb448825a','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','89f91624f7bc92acdb4c0982def777f12f2233c5924ba10164c93268bc18d0da','ea2cf3b53e2ced8747762915390c23e0f97dbd8ca28b36d2ae5bc3b0c8fca744');
INSERT INTO "audit" VALUES(31,1.79532754660239887234e+09,'run 270f386da831','run.interrupt','people','270f386da831',NULL,'9570c28ed441ebc82c2a877adefe2d59','{"message":""}','ea2cf3b53e2ced8747762915390c23e0f97dbd8ca28b36d2ae5bc3b0c8fca744','045923310564a22553b1fe10ac6137fea72f3b36b92135efdbc28413169a858d');
INSERT INTO "audit" VALUES(32,1.79532754660667252539e+09,'test','run.start','people','0732eaad8ba5',NULL,'f77891040ef3bcc00cce7147970a030e','{"accounting":"worst-case","format":1,"key_commitment":"c874763dc464ba7652aeafa6bb4e1c2efdc78a39945932c5acee1a9f633ddc5e","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','045923310564a22553b1fe10ac6137fea72f3b36b92135efdbc28413169a858d','edb2a98e8ac79f3963fd8359ed568d4448939da807d4981e1815bd093d170bd0');
INSERT INTO "audit" VALUES(33,1.79532754662540125845e+09,'run 0732eaad8ba5','round.open','people','0732eaad8ba5',0,'5b27dd701ace596d349061e19bd79b60','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','edb2a98e8ac79f3963fd8359ed568d4448939da807d4981e1815bd093d170bd0','45273b9c249f4f13bc1bb2ff0c4608c7b018eaba581bfa37ca253a0b628b7116');
INSERT INTO "audit" VALUES(34,1.79532754664220499992e+09,'run 0732eaad8ba5','round.void','people','0732eaad8ba5',0,'51a419fbdadd8c604b0d0d0877dc165e','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','45273b9c249f4f13bc1bb2ff0c4608c7b018eaba581bfa37ca253a0b628b7116','2a148bf325efebd941893d9bbb6c64f22f3efaa6ef3d724e363fafee0da51e7c');
INSERT INTO "audit" VALUES(35,1.79532754664625382422e+09,'run 0732eaad8ba5','round.open','people','0732eaad8ba5',0,'936a682eb457f945b25beced75eed6b5','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','2a148bf325efebd941893d9bbb6c64f22f3efaa6ef3d724e363fafee0da51e7c','76a5b44f8371b9db2d20fbdb6b1460a599dcd01557dcd0c0672918c36e66e69b');
INSERT INTO "audit" VALUES(36,1.79532754665443539622e+09,'run 0732eaad8ba5','round.commit','people','0732eaad8ba5',0,'aaa520d4147eea4a6a8f0ebbecf1f498','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','76a5b44f8371b9db2d20fbdb6b1460a599dcd01557dcd0c0672918c36e66e69b','aef9760d59c87bc8abe13da6c0b6b89151be36b5926a2ca8cfe58a63b9ba5716');
INSERT INTO "audit" VALUES(37,1.79532754667076873775e+09,'run 0732eaad8ba5','users.register','people','0732eaad8ba5',NULL,'ba175f4742c19d9a65879d8537af831a','{"count":10,"first":40,"hashes":"1b0315763abca360dab6314f6fcf461f346e426124029a5c0a398a818e0b2d85","pledged":{"270f386da831":274877906944}}','aef9760d59c87bc8abe13da6c0b6b89151be36b5926a2ca8cfe58a63b9ba5716','2fe94c06fe96cdcd53b21341aef6ecb94ce44d270ebea9122910e0672c4ef8bd');
INSERT INTO "audit" VALUES(38,1.79532754668271160125e+09,'run 0732eaad8ba5','round.open','people','0732eaad8ba5',1,'91cae624975bacc14f1a6f75c7813acb','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','2fe94c06fe96cdcd53b21341aef6ecb94ce44d270ebea9122910e0672c4ef8bd','9963352d8e6ceba35fd0adbec6161a660c81c63bd9f942cd3dde69513a2a14dd');
CREATE TABLE charges (
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
	CONSTRAINT pk_charges PRIMARY KEY (population_id, "key"), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79532754649160194394e+09,1.79532754650536751752e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79532754654016375546e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'ee6099d4e5f05af357eb836e6f5e2ff9',38,'9963352d8e6ceba35fd0adbec6161a660c81c63bd9f942cd3dde69513a2a14dd');
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79532754612618851656e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79532754643418717387e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79532754647664546964e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79532754660239887234e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79532754668271160125e+09,30.0);
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
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'FD2381E7F1A65385538110B6821FC04E',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79532754594364666938e+09,'officer',8.67361737988403508001e-25,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'CE7B2AF153C8B5A32895A46E74AEEF34',0,'{"mu_squared":0.0,"sampled":[]}',1.79532754597874021529e+09,'officer',1.0e-07,'worst-case');
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532754606673073771e+09,1.79532754607569432258e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.795327546089892149e+09,1.79532754609631776815e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532754610630440714e+09,1.7953275461184642315e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79532754640726590158e+09,1.7953275464197769165e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79532754645939207072e+09,1.79532754646817731855e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79532754657337379452e+09,1.79532754658643770211e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532754662540125845e+09,1.79532754664220499992e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79532754664625382422e+09,1.79532754665443539622e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79532754668271160125e+09,NULL,NULL);
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
INSERT INTO "runs" VALUES(1,'3859cac9b702',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','bb8877cb123400746368c508339e15901bd6f4b1d70611807c267a0408e4a040',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.7953275460265688896e+09,'test',1.79532754612618851656e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'bef201e0a093',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','d0fd90a7c2c184fefa2d677bdb7c7771287cf73580e1af8ce8c4cd6f4a5ddf54',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.7953275461430006027e+09,'test',1.79532754643418717387e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'c7937c6e7c8c',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','3097c1211a8e064a57708d27d10b289c2daa94d687494c180259439f62c3e9b7',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532754644294595715e+09,'test',1.79532754647664546964e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'270f386da831',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','89e2bc03389fc9c300371c1dcd4005d7ad23a22073e9d30ecf2c99f96384b8d7',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79532754655639195445e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'0732eaad8ba5',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','c874763dc464ba7652aeafa6bb4e1c2efdc78a39945932c5acee1a9f633ddc5e',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532754660667252539e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
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
INSERT INTO "tokens" VALUES('6bb861519136','page','1f50afcac846a807d6108c492fa56cac0bd1535243f30c0a7cd51221634aaa0e','read',1.79532754600292181971e+09,'officer',NULL,1.79532754601811313632e+09);
INSERT INTO "tokens" VALUES('781db3208c0c','office','a936a22afc6bd8ccfd8e27dee8f859a5ad989729262e3328fd932035a53873b1','read admin',1.79532754600458621975e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'5A63ADC2EE709E6BE2E0F81D55F2EE1FE13C5757FBB3DD2336A9D0BEAAEE23CEC1D05DDE99D453174F29F1111A1A482C918C3FFE4B8D1C25857C755A5194C0D985D376603F7C4D15FBF3905EDA8D65686F32DA699ED2B1E0DD7983C42B82A67C200635E82DBA9D962BA18CA4816DF8A929E7EEAD28CE09B6B96A4CE938400B89140C055D969DDF1CF6DC9482630766A090715145B26CDB7596BC329258606AE6B2BF47E3015813B592EF972D7F0ED3FF9992EC3EC46020DB40E5E9D095F997EFEF2B86F39775EB56BC742116CEBC898430A3F1BE7A855375EC85435C8C9650506FFA3F0E3AF99FD3C4A6BF7928491BCF94C34D34EDB7A2D053B7E404EE40E5B1C37E637A204A538FFE2843CA3353DCB4B8FB1401EE26B2117CDEE294C110763FAF72E2DDE4ACAB97733F49A27F379C0993A03C2FFCEF176239F83D04F15ED496');
INSERT INTO "users" VALUES(1,40,10,X'2941464D7627CEF0E3BFDB5F79C3B8F9E4E9C92F85CE168F69C3A3308A4B3F3C7661593292274F9D7A123B41EDA0E05F3FD1DF646B5AC1CB4E5831A1D832508720091637C75B3FE0376B8601E16783F1');
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
