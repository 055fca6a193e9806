BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0007');
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
INSERT INTO "audit" VALUES(1,1.7954530334182434082e+09,'officer','population.create','people',NULL,NULL,'15fb6e955a3df877e9386fd61f787e74','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"509cfb600b395bcbe8ad0c87f967fe5b6a5636a6d8af7e641b881d828aa68234","simulated":false,"two_persons":false,"unit":"user"}','b6c64e45ea10fb4e1ec7ef2707917f688b8bcc59b67119999a5cf67a2a2c142f','bea7b8aa6d2a463f542ad6313c1d5990ff05739489da71f6a70bb39b263cdc1a');
INSERT INTO "audit" VALUES(2,1.79545303359080123898e+09,'officer','population.raise','people',NULL,NULL,'9385be14f0d6158f5696a64e40224012','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','bea7b8aa6d2a463f542ad6313c1d5990ff05739489da71f6a70bb39b263cdc1a','065382ee5fbd0d4552d2ad10bc4b88d16b2b869451d5c523b8f3eeabd56c132e');
INSERT INTO "audit" VALUES(3,1.79545303361579132082e+09,'officer','population.create','others',NULL,NULL,'6cef04ead15ee66f43d63a010eb557a0','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"50a9505538603dfc463741a841a97fce14c34db07ff248e66f86c4ca7f5d7001","simulated":false,"two_persons":false,"unit":"user"}','065382ee5fbd0d4552d2ad10bc4b88d16b2b869451d5c523b8f3eeabd56c132e','872f43427f1b0257945678e7ffa253c5b2db4d45793271041ac322d86a6a8790');
INSERT INTO "audit" VALUES(4,1.79545303362674045564e+09,'officer','population.close','others',NULL,NULL,'9e52cd456aea3406ae431379c3731ee9','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','872f43427f1b0257945678e7ffa253c5b2db4d45793271041ac322d86a6a8790','9154be866c35fd8d84842522e1da080f25575881b4f0a7208fd5f9bdd2c64133');
INSERT INTO "audit" VALUES(5,1.795453033644641161e+09,'officer','token.create',NULL,NULL,NULL,'aab422a3150401186ea6beb207ebc5fc','{"digest":"d1933c15b4121dcf6b480cad34ae3d3966061f2fd013fb62f5da7fa5e86657a5","expires_at":null,"id":"5897dc5b5096","name":"page","populations":null,"scopes":["read"]}','9154be866c35fd8d84842522e1da080f25575881b4f0a7208fd5f9bdd2c64133','b45e6d4cbf317e592150bcf8eed5c80301aabb850580c729722bdd5db9d49f1d');
INSERT INTO "audit" VALUES(6,1.79545303365581202501e+09,'officer','token.create',NULL,NULL,NULL,'411c8dc77a2497d52b8b1b8c5784347c','{"digest":"5a3ef8ee781c392e32dc1e92a10c8f1c178be95cd07d18dda42caef1f2682ffa","expires_at":null,"id":"8db044834603","name":"office","populations":null,"scopes":["read","admin"]}','b45e6d4cbf317e592150bcf8eed5c80301aabb850580c729722bdd5db9d49f1d','a9fee737a2e6635165dff4247938a74f0a0b4975e7920a3de322f3f320ab32af');
INSERT INTO "audit" VALUES(7,1.79545303366362833975e+09,'officer','token.revoke',NULL,NULL,NULL,'dfd41ae64351e18dc6044d4b6d1b924d','{"id":"5897dc5b5096"}','a9fee737a2e6635165dff4247938a74f0a0b4975e7920a3de322f3f320ab32af','48f4eb1209cd4dc6dbff2c3a510d5eec2b4c26ea0406715a5b4e36546e9da949');
INSERT INTO "audit" VALUES(8,1.79545303369623255726e+09,'test','run.start','people','2ccca0594175',NULL,'3bd402a54bbcc60fc217b364775bac18','{"accounting":"worst-case","format":3,"key_commitment":"982566d037a9658a03e487c8c59bc91b8d91b941e11dcf57307b36cf66fe90b4","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','48f4eb1209cd4dc6dbff2c3a510d5eec2b4c26ea0406715a5b4e36546e9da949','c1ddfb7b6a33c2a05f1eb5e7dd5fbbe4c58d4cd37f9f3847b232ee7725843f9b');
INSERT INTO "audit" VALUES(9,1.79545303372666549684e+09,'run 2ccca0594175','users.register','people','2ccca0594175',NULL,'707d53ca14217c4ccfd5f369d00dd362','{"count":40,"first":0,"hashes":"a2bb2ccaa0432138d27c356e84bc433b9b27c03bf531c28ff46136631ad3dda3"}','c1ddfb7b6a33c2a05f1eb5e7dd5fbbe4c58d4cd37f9f3847b232ee7725843f9b','6549999656a0de610eec388c6f661a325efc1b2222ea2f55f6d520bed8cf5273');
INSERT INTO "audit" VALUES(10,1.79545303375257515911e+09,'run 2ccca0594175','round.open','people','2ccca0594175',0,'29494a745cb07b1de30b946da0de1f47','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','6549999656a0de610eec388c6f661a325efc1b2222ea2f55f6d520bed8cf5273','101d1688950cfd9a1046ef142486d88ce98996bd8e2cc510a407ccbdeba1caba');
INSERT INTO "audit" VALUES(11,1.79545303376824831966e+09,'run 2ccca0594175','round.commit','people','2ccca0594175',0,'6327c44199bf1e88f903a4d2698a5d2e','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','101d1688950cfd9a1046ef142486d88ce98996bd8e2cc510a407ccbdeba1caba','d417d2e427b516908542371367a3096e1ce4114503553e0b8d564c70f77c3d98');
INSERT INTO "audit" VALUES(12,1.79545303378196382517e+09,'run 2ccca0594175','round.open','people','2ccca0594175',1,'75f19b46afb58cd6bf4eec36654ec8cd','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','d417d2e427b516908542371367a3096e1ce4114503553e0b8d564c70f77c3d98','6a32dbebaa1f68f3fa5301d775e70a54b1d2416ef293b8225157930b1e118456');
INSERT INTO "audit" VALUES(13,1.79545303379209136959e+09,'run 2ccca0594175','round.commit','people','2ccca0594175',1,'6f89a09de5be6a8bc9ce1a010391718e','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','6a32dbebaa1f68f3fa5301d775e70a54b1d2416ef293b8225157930b1e118456','e6bae711d6ea19b6f57bf7dd680c66ab522cc4b13eb7c10b663b6f4858c1cc99');
INSERT INTO "audit" VALUES(14,1795453033.80024,'run 2ccca0594175','round.open','people','2ccca0594175',2,'cea3688aa098d97b8925966976e0a61c','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','e6bae711d6ea19b6f57bf7dd680c66ab522cc4b13eb7c10b663b6f4858c1cc99','b840ee19de67c60030661283bea0271ed6fc03ef16a8d4e92449e652a7d1b2bb');
INSERT INTO "audit" VALUES(15,1.7954530338162670135e+09,'run 2ccca0594175','round.commit','people','2ccca0594175',2,'d6d185747690c9e07c905d15198502e2','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','b840ee19de67c60030661283bea0271ed6fc03ef16a8d4e92449e652a7d1b2bb','2b6b40b1075ddd77764b20fe01713e8000906265d80b08b6d23aec08ffe54165');
INSERT INTO "audit" VALUES(16,1.7954530338212997913e+09,'2ccca0594175','run.finish','people','2ccca0594175',NULL,'da527d5ff855fc80db4981592db6bcaa','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','2b6b40b1075ddd77764b20fe01713e8000906265d80b08b6d23aec08ffe54165','f0af694f575c94e766f373ad40d60850bb3680d15dd680edcd444df5f123df1b');
INSERT INTO "audit" VALUES(17,1.79545303384808182722e+09,'test','run.start','people','6a9463a407b1',NULL,'a7a56809936496348eb5973d4801f72b','{"accounting":"individual","format":3,"key_commitment":"c4a7c7f34f5ee5b356adcf6d80f6c96d49cbd4a849faf2445e3b971a56fbca66","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','f0af694f575c94e766f373ad40d60850bb3680d15dd680edcd444df5f123df1b','2342dff7d19da5d1002eb9a0566ae0b0a893989c6439258a4f51f7489e372d44');
INSERT INTO "audit" VALUES(18,1.79545303386766839023e+09,'run 6a9463a407b1','round.open','people','6a9463a407b1',0,'814301d833c1bed8a7337de7c020bae2','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','2342dff7d19da5d1002eb9a0566ae0b0a893989c6439258a4f51f7489e372d44','89a4fda433d0673b2ccf6fe75e24cef9f4300df6b20a8105d08fd23692ae11ac');
INSERT INTO "audit" VALUES(19,1.79545303387405848498e+09,'run 6a9463a407b1','round.commit','people','6a9463a407b1',0,'91234f6b7c1ac6d87368ae16590e86d8','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','89a4fda433d0673b2ccf6fe75e24cef9f4300df6b20a8105d08fd23692ae11ac','ac7c8fdcf254404f129ab69ac410f17d068d96a672bc82cb50bf0afcae89db92');
INSERT INTO "audit" VALUES(20,1.79545303389589524264e+09,'6a9463a407b1','run.finish','people','6a9463a407b1',NULL,'6cc492b4defe3008b9d3eb66ecb2aaf4','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','ac7c8fdcf254404f129ab69ac410f17d068d96a672bc82cb50bf0afcae89db92','5d04c1f8b33122c7905f59deaa31ebb0bbc752f5e22ea5a26cf837d4e78ceec3');
INSERT INTO "audit" VALUES(21,1.79545303393763399125e+09,'test','run.start','people','7b9e2e286860',NULL,'5affa390830cdcc11c0ddae9caf6f363','{"accounting":"individual","format":3,"key_commitment":"99e9142566b2c1e17f8691d169d63b28c94ac443e4d51d4024a751d2f808e31a","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','5d04c1f8b33122c7905f59deaa31ebb0bbc752f5e22ea5a26cf837d4e78ceec3','cdde3cde90c953b8b3406dcb0f6355dcd1eb16226dd71c52cfa56d4267a5a09a');
INSERT INTO "audit" VALUES(22,1.79545303395206880571e+09,'run 7b9e2e286860','round.open','people','7b9e2e286860',0,'8d28a96e3a4a60621287cb7cf26c1f68','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','cdde3cde90c953b8b3406dcb0f6355dcd1eb16226dd71c52cfa56d4267a5a09a','1102a7bce43756e4fe5d9751329fe17f99675113e9e0896bf487d2ff8a4ce05a');
INSERT INTO "audit" VALUES(23,1.79545303396105527873e+09,'run 7b9e2e286860','round.commit','people','7b9e2e286860',0,'1ef5167513a6821f0f07fb02562c74f4','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','1102a7bce43756e4fe5d9751329fe17f99675113e9e0896bf487d2ff8a4ce05a','d0148c782a94c88191bcfa7ee89127e933b200f02103919fdcc8e15da218efdc');
INSERT INTO "audit" VALUES(24,1.79545303397338318826e+09,'7b9e2e286860','run.finish','people','7b9e2e286860',NULL,'181bb9087250444d069ce95a7ceee62a','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','d0148c782a94c88191bcfa7ee89127e933b200f02103919fdcc8e15da218efdc','c14355c5e79ca06f93e6050aaff6311daea43e4753d8f06bcb894e4b53f2b795');
INSERT INTO "audit" VALUES(25,1.79545303399891424179e+09,'trainer','charge.reserve','people',NULL,NULL,'d02d8b09181f923ee6d1c8dd1fce9f6c','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','c14355c5e79ca06f93e6050aaff6311daea43e4753d8f06bcb894e4b53f2b795','72551e152de2f4fc61742f164eec36eb3aa8105e0ab0c4320b23c5c102abd354');
INSERT INTO "audit" VALUES(26,1.79545303402871966359e+09,'trainer','charge.commit','people',NULL,NULL,'b8884ecdcbcadd93262d5476749e5b57','{"key":"dp-sgd-1"}','72551e152de2f4fc61742f164eec36eb3aa8105e0ab0c4320b23c5c102abd354','1feba76b7708e2df620657d6895f93f977a2493f28975e7ccfdbe71fc60d9af2');
INSERT INTO "audit" VALUES(27,1.79545303408932352068e+09,'trainer','charge.reserve','people',NULL,NULL,'0e0e2298e328ea2ab65c31e6bf988e9f','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','1feba76b7708e2df620657d6895f93f977a2493f28975e7ccfdbe71fc60d9af2','2ad756fad61931cdb0b63445cce5fea281473282f9e8a7a3f150721c31b07c43');
INSERT INTO "audit" VALUES(28,1.79545303410076093671e+09,'test','run.start','people','53cc30885712',NULL,'6551e40532ecdfed1f9bd18f95d9cba8','{"accounting":"individual","format":3,"key_commitment":"e51b95c757a5c769c29271f8466237535004de1ff97d351e5dfeb514322aa907","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','2ad756fad61931cdb0b63445cce5fea281473282f9e8a7a3f150721c31b07c43','918bf61f1372826b07e3d9afc530af5b7b6d522730d39c053b4752832e475f94');
INSERT INTO "audit" VALUES(29,1.79545303410918378832e+09,'run 53cc30885712','round.open','people','53cc30885712',0,'d47a32dd71a5fcbefa2267c8d796dd4a','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','918bf61f1372826b07e3d9afc530af5b7b6d522730d39c053b4752832e475f94','8c0da31e182856324136b09bb163758935d7a31643fb3cd9a28c442961ff1835');
INSERT INTO "audit" VALUES(30,1.79545303411106276511e+09,'run 53cc30885712','round.commit','people','53cc30885712',0,'77e766c3a8480eebc0868a7202adb583','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','8c0da31e182856324136b09bb163758935d7a31643fb3cd9a28c442961ff1835','00769dc987e4a8df5ef2cd0fe20578f3711725bc21bc1425c1f7e47a7742d91c');
INSERT INTO "audit" VALUES(31,1.79545303411564016347e+09,'run 53cc30885712','run.interrupt','people','53cc30885712',NULL,'b5d3c5e6d3305795a57bc92b763cb258','{"message":""}','00769dc987e4a8df5ef2cd0fe20578f3711725bc21bc1425c1f7e47a7742d91c','ad6bd7f12caf938c8fc4a0da3db275f8c62f6bc7f79477454f69d7bce8d46464');
INSERT INTO "audit" VALUES(32,1.79545303413351511954e+09,'test','run.start','people','24b9dc1d58ad',NULL,'55b7f521d3cf56e35c93a67b63ba74ec','{"accounting":"worst-case","format":3,"key_commitment":"852eaca1f280984c2875183cda20d6e58f8636276f74316680bb10f2e4ada1fd","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','ad6bd7f12caf938c8fc4a0da3db275f8c62f6bc7f79477454f69d7bce8d46464','e1f07abf6e8dc626d2ff19700a897731b2e7ef3686b79d1db7894fa79c238fe0');
INSERT INTO "audit" VALUES(33,1.79545303414091157907e+09,'run 24b9dc1d58ad','round.open','people','24b9dc1d58ad',0,'34827ed0e308d816d610525ba1045a4b','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','e1f07abf6e8dc626d2ff19700a897731b2e7ef3686b79d1db7894fa79c238fe0','71ba73067eda23493c11feefa2aaf8be8a1b14d8c02794d4cb6740a4316c2489');
INSERT INTO "audit" VALUES(34,1.79545303415173625942e+09,'run 24b9dc1d58ad','round.void','people','24b9dc1d58ad',0,'2d354e2f51cac66729efab94956e0338','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','71ba73067eda23493c11feefa2aaf8be8a1b14d8c02794d4cb6740a4316c2489','56bfaab7ffab550a29011ee2fde2000d827241432873779e33e8c35a86b185cb');
INSERT INTO "audit" VALUES(35,1.79545303415959668158e+09,'run 24b9dc1d58ad','round.open','people','24b9dc1d58ad',0,'0121493a0ebe6c43be37ecbfeb605c19','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','56bfaab7ffab550a29011ee2fde2000d827241432873779e33e8c35a86b185cb','69127125be9b34ef2f520c067e90e5c3d7646fe4247fd872dc8c0c1eaa1fc862');
INSERT INTO "audit" VALUES(36,1.79545303416796565051e+09,'run 24b9dc1d58ad','round.commit','people','24b9dc1d58ad',0,'d6629209eefe4fd7a4f2a1f89c955286','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','69127125be9b34ef2f520c067e90e5c3d7646fe4247fd872dc8c0c1eaa1fc862','9b21b39e6ec859f74ab87c6f19949a86c7016f79de01688f9584c3444bdecc64');
INSERT INTO "audit" VALUES(37,1.79545303417676401142e+09,'run 24b9dc1d58ad','users.register','people','24b9dc1d58ad',NULL,'f8ef4b94d288db7b8e1ab26b18dfc504','{"count":10,"first":40,"hashes":"5e638c30035ceb280ea9d99879394d47ae7b983b6a9a905455ae188abaf66558","pledged":{"53cc30885712":274877906944}}','9b21b39e6ec859f74ab87c6f19949a86c7016f79de01688f9584c3444bdecc64','e8f6f51c41128d9f71c9e7164de78134a8c5354cadd00a17c8c8ff766a70631f');
INSERT INTO "audit" VALUES(38,1.79545303418841981882e+09,'run 24b9dc1d58ad','round.open','people','24b9dc1d58ad',1,'10c7df269c91717f9ad09a71e2064303','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','e8f6f51c41128d9f71c9e7164de78134a8c5354cadd00a17c8c8ff766a70631f','a8f4a55875bb25bc17e0ab6e2d86a920015ce3b9fd053fe64fa4b6e3ee2bb9c2');
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
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79545303399891424179e+09,1.79545303402871966359e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79545303408932352068e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'fafbff0c476abc5e5c9903f04f50661b',38,'a8f4a55875bb25bc17e0ab6e2d86a920015ce3b9fd053fe64fa4b6e3ee2bb9c2',NULL);
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
INSERT INTO "leases" VALUES(1,'',2,8,1.7954530338212997913e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79545303389589524264e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79545303397338318826e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79545303411564016347e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79545303418841981882e+09,30.0);
CREATE TABLE objects (
	hash VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_objects PRIMARY KEY (hash)
);
INSERT INTO "objects" VALUES('509cfb600b395bcbe8ad0c87f967fe5b6a5636a6d8af7e641b881d828aa68234',X'39004E9B8E7A4027093B5E53F81DB060');
INSERT INTO "objects" VALUES('50a9505538603dfc463741a841a97fce14c34db07ff248e66f86c4ca7f5d7001',X'B3EB92D08FEF0248A27B924654187C57');
INSERT INTO "objects" VALUES('23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',X'7B2270726976616379223A207B2261646A6163656E6379223A20227A65726F5F6F7574227D2C202272756E223A207B22726F756E6473223A20347D7D');
INSERT INTO "objects" VALUES('167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39',X'7B226163637572616379223A302E357D');
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
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, bound_epsilon DOUBLE DEFAULT '0' NOT NULL, bound_delta DOUBLE DEFAULT '0' NOT NULL, ceiling_epsilon DOUBLE, ceiling_delta DOUBLE, reservation_seconds DOUBLE, two_persons BOOLEAN DEFAULT 0 NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, window_epsilon DOUBLE, window_every VARCHAR(10), 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'39004E9B8E7A4027093B5E53F81DB060',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.7954530334182434082e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual',NULL,NULL);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'B3EB92D08FEF0248A27B924654187C57',0,'{"mu_squared":0.0,"sampled":[]}',1.79545303361579132082e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case',NULL,NULL);
CREATE TABLE proposals (
	id VARCHAR(20) NOT NULL, 
	population_id INTEGER NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	proposed_at DOUBLE NOT NULL, 
	proposed_by VARCHAR(200) NOT NULL, 
	person VARCHAR(200) NOT NULL, 
	decided_at DOUBLE, 
	decided_by VARCHAR(200), 
	CONSTRAINT pk_proposals PRIMARY KEY (id), 
	CONSTRAINT fk_proposals_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79545303375257515911e+09,1.79545303376824831966e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79545303378196382517e+09,1.79545303379209136959e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1795453033.80024,1.7954530338162670135e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79545303386766839023e+09,1.79545303387405848498e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79545303395206880571e+09,1.79545303396105527873e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79545303410918378832e+09,1.79545303411106276511e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79545303414091157907e+09,1.79545303415173625942e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79545303415959668158e+09,1.79545303416796565051e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79545303418841981882e+09,NULL,NULL);
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
	ended_at DOUBLE, price TEXT, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'2ccca0594175',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','982566d037a9658a03e487c8c59bc91b8d91b941e11dcf57307b36cf66fe90b4',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79545303369623255726e+09,'test',1.7954530338212997913e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'6a9463a407b1',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','c4a7c7f34f5ee5b356adcf6d80f6c96d49cbd4a849faf2445e3b971a56fbca66',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79545303384808182722e+09,'test',1.79545303389589524264e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'7b9e2e286860',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','99e9142566b2c1e17f8691d169d63b28c94ac443e4d51d4024a751d2f808e31a',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79545303393763399125e+09,'test',1.79545303397338318826e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'53cc30885712',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','e51b95c757a5c769c29271f8466237535004de1ff97d351e5dfeb514322aa907',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79545303410076093671e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'24b9dc1d58ad',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','852eaca1f280984c2875183cda20d6e58f8636276f74316680bb10f2e4ada1fd',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79545303413351511954e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, populations TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('5897dc5b5096','page','d1933c15b4121dcf6b480cad34ae3d3966061f2fd013fb62f5da7fa5e86657a5','read',1.795453033644641161e+09,'officer',NULL,1.79545303366362833975e+09,NULL);
INSERT INTO "tokens" VALUES('8db044834603','office','5a3ef8ee781c392e32dc1e92a10c8f1c178be95cd07d18dda42caef1f2682ffa','read admin',1.79545303365581202501e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'0B8ABE62A5679C752591C507B8F5F9486208A83900889CF2B7839E7C95D30863BEB36B3DFD48461675636E134679EAF8623C58F8D8304F580FDACBDEA9CCAAFAC7F931CF4960A433F4199019567B0F326471C53C279148D80348B0AB3D1FEC5BBC1D6B2EAC8AE8F84DA5B2DD27BD64D585DA2456DE13E1EA9C082245E7756D0BDE81AB1E82C14AC7CD60A6F0889D40809CE23574DDC324C27D1F8A49C0A803CF3926E1F70916C749CE08076ECA962644270882DE38C9E5408675E553A28FF4697AFD5AC416596301909EA2EE0FE4A982021867A54601DD72CCD275B87DC8537F1B21124F3052C75EAB23DB8CF8DD3F49CC57B8900D0A4E2B986423C41CBADF49C82001643150E64994EFE5D2D512DF01D052A8DC505CC0C3134ECBD64D65A21CC00F8D0ED6582BCB97A915EBFAC9E95F876854504043442B960BA7360A12E5D5');
INSERT INTO "users" VALUES(1,40,10,X'1B92C11F337366D878549010B1FCFE0B5B72D10E40D7644CA847F3D1987B59A29FE818243CCA06C21AA7C2E14B254212464D3D7499FA2F6A80322E6FE88CD35A6A6537899078C7E97B25356636C9A612');
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
CREATE INDEX ix_audit_tokens ON audit (id) WHERE action IN ('token.create', 'token.revoke');
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER objects_update BEFORE UPDATE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
CREATE TRIGGER objects_delete BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
COMMIT;
